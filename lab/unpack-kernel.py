#!/usr/bin/env python3
"""unpack-kernel.py BZIMAGE VMLINUX: takes the ELF image out of a compressed kernel.

QEMU starts it directly (PVH); unpacking it in emulation would cost three seconds at every boot. The field
offsets are those of the x86 boot protocol, Documentation/x86/boot.rst of the kernel.
"""

import lzma
import struct
import subprocess
import sys

SETUP_SECTS, MAGIC, PAYLOAD_OFFSET, PAYLOAD_LENGTH = 0x1F1, 0x202, 0x248, 0x24C
XZ, ZSTANDARD = b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd"


def main(source, target):
    with open(source, "rb") as file:
        image = file.read()
    if image[MAGIC : MAGIC + 4] != b"HdrS":
        sys.exit(f"{source}: not a bzImage")
    start = (image[SETUP_SECTS] + 1) * 512 + struct.unpack_from("<I", image, PAYLOAD_OFFSET)[0]
    length = struct.unpack_from("<I", image, PAYLOAD_LENGTH)[0]
    payload = image[start : start + length]
    # Four bytes of size follow the stream.
    if payload.startswith(XZ):
        kernel = lzma.LZMADecompressor(lzma.FORMAT_XZ).decompress(payload)
    elif payload.startswith(ZSTANDARD):
        kernel = subprocess.run(
            ["zstd", "-dc"], input=payload[:-4], stdout=subprocess.PIPE, check=True
        ).stdout
    else:
        sys.exit(f"{source}: its payload is neither xz nor zstd")
    with open(target, "wb") as file:
        file.write(kernel)


if __name__ == "__main__":
    main(*sys.argv[1:])
