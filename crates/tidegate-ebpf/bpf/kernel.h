/* What programs here use of the kernel. Numbers and layouts are Linux's interface to user space (linux/bpf.h, linux/in.h)
 * and the protocols' own; written down here so that building takes nothing but clang. */

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define SECTION(name) __attribute__((section(name), used))
#define ALWAYS_INLINE inline __attribute__((always_inline))

/* A map is described by the types of its fields, which the loader reads. */
#define NUMBER(name, value) int (*name)[value]
#define TYPE(name, type) type *name

enum { MAP_HASH = 1, MAP_ARRAY = 2, MAP_PERCPU_HASH = 5, MAP_LRU_HASH = 9 };
enum { NO_PREALLOC = 1 };

static void *(*const map_lookup)(void *map, const void *key) = (void *)1;
static long (*const map_update)(void *map, const void *key, const void *value, u64 flags) = (void *)2;
static long (*const map_delete)(void *map, const void *key) = (void *)3;
static u64 (*const ktime_get_ns)(void) = (void *)5;
static long (*const skb_load_bytes)(const void *skb, u32 offset, void *to, u32 length) = (void *)26;
/* Of what is in the packet's first piece only: headers are, payload may not be. */
static long (*const skb_load_bytes_relative)(const void *skb, u32 offset, void *to, u32 length, u32 from) = (void *)68;
enum { FROM_NETWORK_HEADER = 1 };

/* struct __sk_buff, as far as the last field that is used. */
struct packet {
	u32 length; /* with the link layer's header */
	u32 unused_1[3];
	u32 protocol; /* of the link layer, in network order */
	u32 unused_2[3];
	u32 priority;
	u32 unused_3[29];
	u64 departure; /* tstamp: nanoseconds of the monotonic clock */
};
_Static_assert(__builtin_offsetof(struct packet, priority) == 32, "as in linux/bpf.h");
_Static_assert(__builtin_offsetof(struct packet, departure) == 152, "as in linux/bpf.h");

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define NETWORK_16(value) __builtin_bswap16(value)
#define NETWORK_32(value) __builtin_bswap32(value)
#else
#define NETWORK_16(value) (value)
#define NETWORK_32(value) (value)
#endif

enum { ETHERNET_IPV4 = 0x0800, ETHERNET_IPV6 = 0x86dd };
enum { HOP_BY_HOP = 0, TCP = 6 };

struct ipv4_header {
	u8 version_and_words;
	u8 service;
	u16 length; /* with this header */
	u16 identification;
	u16 fragment;
	u8 hops;
	u8 protocol;
	u16 checksum;
	u32 from;
	u32 to;
};

struct ipv6_header {
	u32 version_and_flow;
	u16 length; /* without this header */
	u8 next;
	u8 hops;
	u32 from[4];
	u32 to[4];
};

struct tcp_header {
	u16 from;
	u16 to;
	u32 sequence;
	u32 acknowledged;
	u8 words; /* in the upper half */
	u8 flags;
	u16 window;
	u16 checksum;
	u16 urgent;
};
enum { FIN = 0x01, SYN = 0x02, RST = 0x04 };
