/*
 * The peer's half of the mlx5 figures: DPDK's own driver on the device model, through DPDK's public API only.
 *
 * One process is one trial of one mode, which its device arguments and the words behind `--` say. Each round, 32 frames are given to the
 * wire and the device works, a burst is received and timed, the same packets are sent and timed, and the device works: outside the timed
 * parts, in this thread, as on our side. Ends with one line:
 *
 *   first CYCLES second CYCLES both CYCLES bytes BYTES modes RX / TX
 *
 * cycles to receive a packet, and to send it, without what two reads of the counter cost, means of the rounds of which the slowest 1 in 100 are left out; and bytes that
 * PCIe carried for a packet. Runs under `mlx5-run --stepped --wire cable:bench`.
 *
 * With FIRST_PACKET_FROM in the environment (wall clock, ns): opens the port, receives a first burst, prints how many milliseconds have
 * passed since then, and ends.
 */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>

#include "cycles.h"
#include "mlx5_run.h"

#define BURST 32
#define BYTES 64
#define ROUNDS 4000
#define WARM_UP 200
#define DESCRIPTORS 1024
#define POOL_SIZE 4095
#define POOL_CACHE 256

static uint16_t port;
static int wire;
static bool tagged;

static void die(const char *what, int error)
{
	fprintf(stderr, "mlx5: %s: %s\n", what, rte_strerror(error < 0 ? -error : error));
	exit(1);
}

/* UDP over IPv4 from a thousand addresses, as our side has them. */
static void feed(unsigned count)
{
	static const uint8_t addresses[12] = {2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 9};
	static const uint8_t tag[4] = {0x81, 0, 0, 7};
	static const uint8_t rest[26] = {8, 0, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 0, 10, 1, 0, 1, 4, 0, 4, 1};
	static uint32_t next;
	for (unsigned i = 0; i < count; i++) {
		uint8_t frame[BYTES] = {0};
		unsigned at = sizeof(addresses);
		memcpy(frame, addresses, at);
		if (tagged) {
			memcpy(frame + at, tag, sizeof(tag));
			at += sizeof(tag);
		}
		memcpy(frame + at, rest, sizeof(rest));
		next++;
		frame[at + 16] = (next >> 8) & 3;
		frame[at + 17] = next;
		frame[at + 27] = 26;
		if (mlx5_run_send(wire, frame, BYTES))
			die("a frame", rte_errno);
	}
}

/* Takes what the device sent; how many frames. */
static unsigned drain(void)
{
	uint8_t room[2048];
	unsigned count = 0;
	while (mlx5_run_receive(wire, room, sizeof(room)) > 0)
		count++;
	return count;
}

static uint64_t bus_bytes(void)
{
	uint64_t both[2];
	if (mlx5_run_bus_bytes(0, both))
		die("the ledger", ENODEV);
	return both[0] + both[1];
}

static void measure(uint64_t flags)
{
	static uint64_t rx[ROUNDS], tx[ROUNDS], io[ROUNDS];
	const uint64_t overhead = two_reads();
	uint64_t bytes = 0;
	struct rte_eth_burst_mode rx_mode = {0}, tx_mode = {0};
	for (unsigned round = 0; round < WARM_UP + ROUNDS; round++) {
		struct rte_mbuf *burst[BURST];
		if (round == WARM_UP)
			bytes = bus_bytes();
		feed(BURST);
		if (mlx5_run_step() < 0)
			die("the device", EPERM);
		uint64_t start = now();
		uint16_t got = rte_eth_rx_burst(port, 0, burst, BURST);
		uint64_t received = now() - start;
		if (got != BURST) {
			fprintf(stderr, "mlx5: a burst of %u in round %u\n", got, round);
			exit(1);
		}
		if (flags)
			for (unsigned i = 0; i < BURST; i++) {
				burst[i]->ol_flags |= flags;
				burst[i]->l2_len = 14;
				burst[i]->l3_len = 20;
				burst[i]->vlan_tci = 7;
			}
		start = now();
		uint16_t sent = rte_eth_tx_burst(port, 0, burst, BURST);
		uint64_t transmitted = now() - start;
		if (mlx5_run_step() < 0)
			die("the device", EPERM);
		if (sent != BURST || drain() != BURST) {
			fprintf(stderr, "mlx5: %u sent in round %u, or not all came out\n", sent, round);
			exit(1);
		}
		if (round >= WARM_UP) {
			rx[round - WARM_UP] = less(received, overhead);
			tx[round - WARM_UP] = less(transmitted, overhead);
			io[round - WARM_UP] = less(received, overhead) + less(transmitted, overhead);
		}
	}
	bytes = bus_bytes() - bytes;
	rte_eth_rx_burst_mode_get(port, 0, &rx_mode);
	rte_eth_tx_burst_mode_get(port, 0, &tx_mode);
	printf("first %.4f second %.4f both %.4f bytes %.4f modes %s / %s\n", mean(rx, ROUNDS, BURST), mean(tx, ROUNDS, BURST),
	       mean(io, ROUNDS, BURST),
	       (double)bytes / ROUNDS / BURST, rx_mode.info, tx_mode.info);
}

int main(int argc, char **argv)
{
	struct rte_eth_conf conf = {0};
	uint64_t flags = 0;
	int error, used = rte_eal_init(argc, argv);
	if (used < 0)
		die("EAL", rte_errno);
	for (int i = used + 1; i < argc; i++) {
		if (!strcmp(argv[i], "fast-free"))
			conf.txmode.offloads |= RTE_ETH_TX_OFFLOAD_MBUF_FAST_FREE;
		else if (!strcmp(argv[i], "rx-checks"))
			conf.rxmode.offloads |= RTE_ETH_RX_OFFLOAD_CHECKSUM | RTE_ETH_RX_OFFLOAD_RSS_HASH;
		else if (!strcmp(argv[i], "strip")) {
			conf.rxmode.offloads |= RTE_ETH_RX_OFFLOAD_VLAN_STRIP;
			tagged = true;
		} else if (!strcmp(argv[i], "tx-checks")) {
			conf.txmode.offloads |= RTE_ETH_TX_OFFLOAD_IPV4_CKSUM | RTE_ETH_TX_OFFLOAD_UDP_CKSUM;
			flags |= RTE_MBUF_F_TX_IPV4 | RTE_MBUF_F_TX_IP_CKSUM | RTE_MBUF_F_TX_UDP_CKSUM;
		} else if (!strcmp(argv[i], "insert")) {
			conf.txmode.offloads |= RTE_ETH_TX_OFFLOAD_VLAN_INSERT;
			flags |= RTE_MBUF_F_TX_VLAN;
		} else {
			fprintf(stderr, "mlx5: '%s': not fast-free, rx-checks, strip, tx-checks or insert\n", argv[i]);
			return 1;
		}
	}
	if (conf.rxmode.offloads & RTE_ETH_RX_OFFLOAD_RSS_HASH) {
		conf.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
		conf.rx_adv_conf.rss_conf.rss_hf = RTE_ETH_RSS_IP | RTE_ETH_RSS_UDP;
	}
	if (!mlx5_run_plug || (wire = mlx5_run_plug("bench")) < 0) {
		fprintf(stderr, "mlx5: this runs under mlx5-run --stepped --wire cable:bench\n");
		return 1;
	}
	RTE_ETH_FOREACH_DEV(port)
		break;
	if (port >= RTE_MAX_ETHPORTS) {
		fprintf(stderr, "mlx5: no port was probed\n");
		return 1;
	}
	struct rte_mempool *pool =
		rte_pktmbuf_pool_create("bench", POOL_SIZE, POOL_CACHE, 0, RTE_MBUF_DEFAULT_BUF_SIZE, SOCKET_ID_ANY);
	if (!pool)
		die("the pool", rte_errno);
	if ((error = rte_eth_dev_configure(port, 1, 1, &conf)) ||
	    (error = rte_eth_rx_queue_setup(port, 0, DESCRIPTORS, SOCKET_ID_ANY, NULL, pool)) ||
	    (error = rte_eth_tx_queue_setup(port, 0, DESCRIPTORS, SOCKET_ID_ANY, NULL)) ||
	    (error = rte_eth_dev_start(port)) || (error = rte_eth_promiscuous_enable(port)))
		die("the port", error);
	const char *from = getenv("FIRST_PACKET_FROM");
	if (from) {
		struct rte_mbuf *burst[BURST];
		struct timespec now;
		feed(BURST);
		while (!rte_eth_rx_burst(port, 0, burst, BURST))
			mlx5_run_step();
		clock_gettime(CLOCK_REALTIME, &now);
		printf("start %.4f\n", (now.tv_sec * 1e9 + now.tv_nsec - strtod(from, NULL)) / 1e6);
	} else {
		measure(flags);
	}
	fflush(stdout);
	rte_eth_dev_stop(port);
	return 0;
}
