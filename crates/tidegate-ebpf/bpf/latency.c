/* Counts how long reads and writes take at the block devices that are asked for, in a histogram for each.
 *
 * What a device works with decides what is counted. A disk has requests: a request's beginning is in it when it ends. A device
 * such as a volume of device-mapper has bios only, whose beginnings are remembered here. No tracepoint fires for the end of a
 * bio that ended with a request, and none for requests of a device that has only bios: nothing is counted twice. */

#include "kernel.h"

/* As src/latency.rs has it. */
enum { MOST_IN_FLIGHT = 32768 };
enum { FINEST_BITS = 10, COARSEST_BITS = 36, SUB_BITS = 3 };
enum { BUCKETS = ((COARSEST_BITS - FINEST_BITS) << SUB_BITS) + 2 };

/* Of the kernel's own structures what is used here, by name: the loader puts in where this kernel has it. */
#define KERNELS __attribute__((preserve_access_index))

struct gendisk;

struct block_device {
	u32 bd_dev;
	struct gendisk *bd_disk;
} KERNELS;

struct request_queue {
	const void *mq_ops;
} KERNELS;

struct gendisk {
	struct block_device *part0;
	struct request_queue *queue;
} KERNELS;

struct bvec_iter {
	u32 bi_size;
} KERNELS;

struct bio {
	struct block_device *bi_bdev;
	u32 bi_opf;
	struct bvec_iter bi_iter;
} KERNELS;

struct request {
	u32 cmd_flags;
	u32 __data_len;
	struct block_device *part;
	u64 start_time_ns;
} KERNELS;

struct times {
	u64 nanos; /* all together */
	u64 counts[BUCKETS];
};

struct device {
	struct times reads;
	struct times writes;
};

/* By device number. User space makes the entries, and so says which devices count: there are no others. It also says how many
 * there is room for, all of it taken at the start: bit by bit the kernel gives memory of every processor only slowly.
 *
 * Each processor has a value of its own, which no other one writes, and a program is not run within itself: nothing is lost
 * without atomics. */
struct {
	NUMBER(type, MAP_PERCPU_HASH);
	NUMBER(max_entries, 1);
	TYPE(key, u32);
	TYPE(value, struct device);
} tidegate_times SECTION(".maps");

struct beginning {
	u64 at;
	u64 queue; /* a bio that ends at another queue is another bio in the same place */
	u32 whole; /* the device that it was given to */
	u32 part;  /* and if that is a partition, the partition; otherwise the same */
};

/* By the bio's address. Of bios that never end here, as far as tracepoints tell, the longest unused are forgotten. */
struct {
	NUMBER(type, MAP_LRU_HASH);
	NUMBER(max_entries, MOST_IN_FLIGHT);
	TYPE(key, u64);
	TYPE(value, struct beginning);
} tidegate_begun SECTION(".maps");

static ALWAYS_INLINE u32 log2_of(u64 value)
{
	u32 log = 0;

#pragma unroll
	for (u32 bits = 32; bits; bits /= 2) {
		if (value >> bits) {
			value >>= bits;
			log += bits;
		}
	}
	return log;
}

/* A bucket contains its upper bound, as Prometheus has it. */
static ALWAYS_INLINE u32 bucket_of(u64 nanos)
{
	u64 below;
	u32 octave;

	if (nanos <= 1ull << FINEST_BITS)
		return 0;
	if (nanos > 1ull << COARSEST_BITS)
		return BUCKETS - 1;
	below = nanos - 1;
	octave = log2_of(below);
	return 1 + ((octave - FINEST_BITS) << SUB_BITS) + (below >> (octave - SUB_BITS) & ((1 << SUB_BITS) - 1));
}

/* Reads, and writes of zeroes as of anything else. */
enum operation { READ = 0, WRITE = 1, WRITE_ZEROES = 9, OPERATION = 0xff };

static ALWAYS_INLINE int counts(u32 flags)
{
	u32 operation = flags & OPERATION;

	return operation == READ || operation == WRITE || operation == WRITE_ZEROES;
}

static ALWAYS_INLINE void add(u32 device, u32 flags, u64 nanos)
{
	struct device *found = map_lookup(&tidegate_times, &device);
	struct times *times;
	u32 bucket;

	if (!found)
		return;
	times = (flags & OPERATION) == READ ? &found->reads : &found->writes;
	bucket = bucket_of(nanos);
	if (bucket >= BUCKETS)
		return;
	times->nanos += nanos;
	times->counts[bucket]++;
}

static ALWAYS_INLINE u64 since(u64 beginning)
{
	u64 now = ktime_get_ns();

	return now > beginning ? now - beginning : 0;
}

/* A part of a request may end before the rest. One that carries nothing is a flush, or ended when its data did. */
SECTION("tp_btf/block_rq_complete")
int tidegate_rq_end(u64 *arguments)
{
	struct request *request = (void *)arguments[0];
	u32 bytes = arguments[2], flags = request->cmd_flags, device, whole;
	struct block_device *part;
	u64 began, nanos;

	if (!counts(flags) || !bytes || bytes != request->__data_len)
		return 0;
	part = request->part;
	began = request->start_time_ns;
	/* The device's iostats are off, or it is a command of the driver's. */
	if (!part || !began)
		return 0;
	device = part->bd_dev;
	whole = part->bd_disk->part0->bd_dev;
	nanos = since(began);
	add(device, flags, nanos);
	if (whole != device)
		add(whole, flags, nanos);
	return 0;
}

SECTION("tp_btf/block_bio_queue")
int tidegate_begin(u64 *arguments)
{
	struct bio *bio = (void *)arguments[0];
	struct block_device *device = bio->bi_bdev;
	struct request_queue *queue = device->bd_disk->queue;
	struct beginning beginning;
	u64 key = (u64)bio;

	if (queue->mq_ops || !counts(bio->bi_opf) || !bio->bi_iter.bi_size)
		return 0;
	beginning.part = device->bd_dev;
	beginning.whole = device->bd_disk->part0->bd_dev;
	if (!map_lookup(&tidegate_times, &beginning.part) && !map_lookup(&tidegate_times, &beginning.whole))
		return 0;
	beginning.queue = (u64)queue;
	beginning.at = ktime_get_ns();
	map_update(&tidegate_begun, &key, &beginning, 0);
	return 0;
}

SECTION("tp_btf/block_bio_complete")
int tidegate_end(u64 *arguments)
{
	struct bio *bio = (void *)arguments[1];
	u64 key = (u64)bio, queue = arguments[0], nanos;
	struct beginning *beginning = map_lookup(&tidegate_begun, &key);
	u32 whole, part, flags;

	if (!beginning)
		return 0;
	if (beginning->queue == queue) {
		flags = bio->bi_opf;
		part = beginning->part;
		whole = beginning->whole;
		nanos = since(beginning->at);
		add(part, flags, nanos);
		if (whole != part)
			add(whole, flags, nanos);
	}
	map_delete(&tidegate_begun, &key);
	return 0;
}

/* Some of the kernel's functions are for programs under its own licence only. */
char terms[] SECTION("license") = "Dual MIT/GPL";
