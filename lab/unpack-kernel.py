#!/usr/bin/env python3
"""unpack-kernel.py BZIMAGE VMLINUX: takes the ELF image out of a compressed kernel.

QEMU starts it directly (PVH); unpacking it in emulation would cost three seconds at every boot. Field offsets: the
x86 boot protocol, Documentation/x86/boot.rst of the kernel.
"""
import lzma
import struct
import sys

SETUP_SECTS, MAGIC, PAYLOAD_OFFSET, PAYLOAD_LENGTH = 0x1F1, 0x202, 0x248, 0x24C
XZ = b"\xfd7zXZ\x00"


def main(source, target):
    with open(source, "rb") as file:
        image = file.read()
    if image[MAGIC:MAGIC + 4] != b"HdrS":
        sys.exit(f"{source}: not a bzImage")
    start = (image[SETUP_SECTS] + 1) * 512 + struct.unpack_from("<I", image, PAYLOAD_OFFSET)[0]
    length = struct.unpack_from("<I", image, PAYLOAD_LENGTH)[0]
    payload = image[start:start + length]
    if not payload.startswith(XZ):
        sys.exit(f"{source}: its payload is not xz")
    # A decompressor object, because four bytes of size follow the xz stream.
    with open(target, "wb") as file:
        file.write(lzma.LZMADecompressor(lzma.FORMAT_XZ).decompress(payload))


if __name__ == "__main__":
    main(*sys.argv[1:])
