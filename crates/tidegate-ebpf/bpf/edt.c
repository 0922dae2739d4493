/* Gives packets to held consumers a time before which they must not leave: the earliest departure time, by which the
 * queueing discipline fq sorts and holds them. A filter of Tidegate's root on an interface; returns the class of a packet
 * that is held, or 0: it goes its direct way.
 *
 * Writes the departure time, and nothing else of a packet. (And of one with the priority 7 the priority, see below.) */

#include "kernel.h"

/* As src/edt.rs has it. */
enum { ALL = 0, ACKS = 1, RESPONSES = 2 };
enum { MOST_MEMBERS = 65536, SLOTS = 4097, PORTS = 65536, MOST_BEGINNINGS = 7 };
enum { COUNTS = 0x80 };

/* An IPv4 address as ::ffff:a.b.c.d. */
struct address {
	u32 words[4];
};

/* Of a payload: its first four bytes in network order, of which the mask's bits count. */
struct beginning {
	u32 mask;
	u32 value;
};

struct settings {
	u32 packets; /* which of those to a member: ALL, ACKS, RESPONSES */
	u32 class;   /* where they go */
	struct beginning beginnings[MOST_BEGINNINGS];
	u8 ports[PORTS]; /* of each source port, in network order: COUNTS, and a bit for each beginning that a response has */
};

struct {
	NUMBER(type, MAP_ARRAY);
	NUMBER(max_entries, 1);
	TYPE(key, u32);
	TYPE(value, struct settings);
} tidegate_set SECTION(".maps");

/* Members: the slot whose delay is theirs. */
struct {
	NUMBER(type, MAP_HASH);
	NUMBER(map_flags, NO_PREALLOC);
	NUMBER(max_entries, MOST_MEMBERS);
	TYPE(key, struct address);
	TYPE(value, u32);
} tidegate_held SECTION(".maps");

/* Nanoseconds. Slot 0 is of those who are being let go, and has no delay. */
struct {
	NUMBER(type, MAP_ARRAY);
	NUMBER(max_entries, SLOTS);
	TYPE(key, u32);
	TYPE(value, u64);
} tidegate_delay SECTION(".maps");

/* When the last packet that was given a time will leave, for each member. */
struct {
	NUMBER(type, MAP_HASH);
	NUMBER(map_flags, NO_PREALLOC);
	NUMBER(max_entries, MOST_MEMBERS);
	TYPE(key, struct address);
	TYPE(value, u64);
} tidegate_last SECTION(".maps");

/* What of a packet decides, behind its addresses. */
struct transport {
	u32 at;     /* where the TCP header begins, behind the network header's beginning */
	u32 length; /* of TCP header and payload; 0 is more than the IP header can say */
};

static ALWAYS_INLINE int load(const struct packet *packet, u32 at, void *to, u32 length)
{
	return skb_load_bytes_relative(packet, at, to, length, FROM_NETWORK_HEADER) == 0;
}

static ALWAYS_INLINE int ipv4(const struct packet *packet, struct address *to, struct transport *tcp)
{
	struct ipv4_header ip;

	if (!load(packet, 0, &ip, sizeof(ip)) || ip.protocol != TCP)
		return 0;
	tcp->at = (ip.version_and_words & 0xf) * 4;
	tcp->length = ip.length ? NETWORK_16(ip.length) - tcp->at : 0;
	to->words[0] = 0;
	to->words[1] = 0;
	to->words[2] = NETWORK_32(0xffff);
	to->words[3] = ip.to;
	return 1;
}

static ALWAYS_INLINE int ipv6(const struct packet *packet, struct address *to, struct transport *tcp)
{
	struct ipv6_header ip;
	u8 hop_by_hop[2];

	if (!load(packet, 0, &ip, sizeof(ip)))
		return 0;
	tcp->at = sizeof(ip);
	tcp->length = NETWORK_16(ip.length);
	if (ip.next == HOP_BY_HOP) {
		/* Packets of more than 64 KiB on their way to the interface have this one, and say 0 as their length. */
		u32 length;

		if (!load(packet, sizeof(ip), hop_by_hop, sizeof(hop_by_hop)))
			return 0;
		ip.next = hop_by_hop[0];
		length = (hop_by_hop[1] + 1) * 8;
		tcp->at += length;
		if (tcp->length)
			tcp->length -= length;
	}
	if (ip.next != TCP)
		return 0;
	to->words[0] = ip.to[0];
	to->words[1] = ip.to[1];
	to->words[2] = ip.to[2];
	to->words[3] = ip.to[3];
	return 1;
}

static ALWAYS_INLINE int is_meant(const struct packet *packet, const struct transport *tcp, const struct settings *settings)
{
	struct tcp_header header;
	u32 words, payload;
	u8 port;

	if (!load(packet, tcp->at, &header, sizeof(header)))
		return 0;
	/* In network order: Linux 6.1 takes a number that was swapped for one without bounds. */
	port = settings->ports[header.from];
	if (!(port & COUNTS))
		return 0;
	if (settings->packets == ALL)
		return 1;
	words = header.words >> 4;
	if (tcp->length == words * 4)
		return !(header.flags & (FIN | SYN | RST));
	if (settings->packets != RESPONSES || !tcp->length || packet->length < tcp->length)
		return 0;
	/* Counted from the end: the payload may be elsewhere than the headers, and the link layer's has any length. */
	if (skb_load_bytes(packet, packet->length - tcp->length + words * 4, &payload, sizeof(payload)) != 0)
		return 0;
	payload = NETWORK_32(payload);
#pragma unroll
	for (int number = 0; number < MOST_BEGINNINGS; number++) {
		const struct beginning *beginning = &settings->beginnings[number];

		if ((port >> number & 1) && (payload & beginning->mask) == beginning->value)
			return 1;
	}
	return 0;
}

/* Not before `wanted`, and not before the last one: fq sorts the packets of a connection by their times, and TCP takes
 * overtaking for loss. So when the delay shrinks, packets leave together with the last of those that were held longer.
 *
 * Packets of one connection come here one after the other. Those of two connections of a member may come at once, where
 * they leave by two interfaces: hence the comparison. Who lost it so often has left its time to later ones of the others. */
static ALWAYS_INLINE u64 in_order(const struct address *to, u64 wanted)
{
	enum { ATTEMPTS = 8 };
	u64 *last = map_lookup(&tidegate_last, to);

	if (!last)
		return wanted;
#pragma unroll
	for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
		u64 seen = *(volatile u64 *)last;

		if (seen >= wanted)
			return seen;
		if (__sync_val_compare_and_swap(last, seen, wanted) == seen)
			return wanted;
	}
	return wanted;
}

SECTION("classifier")
int tidegate_edt(struct packet *packet)
{
	/* fq sends what has this priority at once, whatever its time. */
	enum { CONTROL = 7, INTERACTIVE = 6, PRIORITIES = 15 };
	struct transport tcp;
	struct address to;
	struct settings *settings;
	u32 zero = 0, *slot;
	u64 *delay;

	if (packet->protocol == NETWORK_16(ETHERNET_IPV4) ? !ipv4(packet, &to, &tcp)
	    : packet->protocol != NETWORK_16(ETHERNET_IPV6) || !ipv6(packet, &to, &tcp))
		return 0;
	slot = map_lookup(&tidegate_held, &to);
	if (!slot)
		return 0;
	delay = map_lookup(&tidegate_delay, slot);
	settings = map_lookup(&tidegate_set, &zero);
	if (!delay || !settings || !is_meant(packet, &tcp, settings))
		return 0;
	/* The time that TCP gave it is not kept: where some fq once paced the connection, TCP spreads packets over the round
	 * trip that it measures, of which this delay is a part. They would be held a little longer than they are to be. */
	packet->departure = in_order(&to, ktime_get_ns() + *delay);
	if ((packet->priority & PRIORITIES) == CONTROL)
		packet->priority = INTERACTIVE;
	return settings->class;
}

/* Some of the kernel's functions are for programs under its own licence only. */
char terms[] SECTION("license") = "Dual MIT/GPL";
