/* The time-stamp counter as our side reads it: what is before has been done, and what is behind has not begun. */
#ifndef CYCLES_H
#define CYCLES_H

#include <stdint.h>
#include <stdlib.h>
#include <x86intrin.h>

static inline uint64_t now(void)
{
	_mm_lfence();
	uint64_t cycles = __rdtsc();
	_mm_lfence();
	return cycles;
}

/* What two reads in a row say: the part of each time that is not the work's. */
static inline uint64_t two_reads(void)
{
	uint64_t least = UINT64_MAX;
	for (unsigned i = 0; i < 10000; i++) {
		uint64_t start = now(), took = now() - start;
		least = took < least ? took : least;
	}
	return least;
}

static inline uint64_t less(uint64_t cycles, uint64_t overhead)
{
	return cycles > overhead ? cycles - overhead : 0;
}

static int by_size(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return x < y ? -1 : x > y;
}

/* Cycles for an operation: the mean of the rounds, without the slowest 1 in 100, which something interrupted. Sorts them. */
static inline double mean(uint64_t *cycles, unsigned rounds, unsigned operations)
{
	const unsigned kept = rounds - rounds / 100;
	uint64_t sum = 0;
	qsort(cycles, rounds, sizeof(*cycles), by_size);
	for (unsigned i = 0; i < kept; i++)
		sum += cycles[i];
	return (double)sum / kept / operations;
}

#endif
