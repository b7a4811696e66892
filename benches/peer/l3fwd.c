/* DPDK's own l3fwd, as its source is, with a thread that tells how many packets port 1 has sent, and when by the time-stamp counter. */
#define main l3fwd_main
#include "main.c"
#undef main

#include <pthread.h>
#include <unistd.h>

static void *
tell(void *unused)
{
	struct rte_eth_stats stats;

	(void)unused;
	for (;;) {
		usleep(50000);
		if (rte_eth_dev_is_valid_port(1) && rte_eth_stats_get(1, &stats) == 0 && stats.opackets > 0) {
			printf("sent %" PRIu64 " %" PRIu64 "\n", stats.opackets, rte_rdtsc());
			fflush(stdout);
		}
	}
	return NULL;
}

int
main(int argc, char **argv)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, tell, NULL) != 0)
		return 1;
	return l3fwd_main(argc, argv);
}
