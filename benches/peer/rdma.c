/*
 * The peer's half of the RDMA figures: rdma-core's libibverbs and libmlx5 on two device models and the cable between them.
 *
 * One process is one trial of one way to post and poll, which its words say: `send` (64 bytes) or `write` (8 bytes), requests with one
 * doorbell (1, 32), requests with one completion (1, 32), completions that a call takes at most (1, 32), and `post` (ibv_post_send,
 * ibv_poll_cq) or `wr` (ibv_wr_start, ibv_start_poll). The devices work outside the timed parts, in this thread, as on our side. Ends with
 * one line:
 *
 *   first CYCLES second CYCLES both CYCLES bytes BYTES
 *
 * cycles to post a request, and to poll (by completions), without what two reads of the counter cost, means of the rounds of which the slowest
 * 1 in 100 are left out; and bytes that PCIe carried for a request on the sending card.
 * Runs under `mlx5-run --stepped --ports 2 --wire cable:bench --wire cable:bench`.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/verbs.h>

#include "cycles.h"
#include "mlx5_run.h"

#define REQUESTS 32
#define ROUNDS 4000
#define WARM_UP 200
#define DEPTH 128
#define REGION 65536

struct end {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_cq_ex *cq_ex;
	struct ibv_qp *qp;
	struct ibv_qp_ex *qp_ex;
	struct ibv_mr *mr;
	union ibv_gid gid;
	char *region;
};

static struct end near, far;
static bool is_write, by_wr;
static unsigned batch, signal_every, poll_most;
static char payload[64];
static struct ibv_send_wr requests[REQUESTS];
static struct ibv_sge pieces[REQUESTS];

static void die(const char *what)
{
	fprintf(stderr, "rdma: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void open_end(struct end *end, struct ibv_device *device)
{
	struct ibv_cq_init_attr_ex cq = {.cqe = 4095, .wc_flags = IBV_WC_EX_WITH_BYTE_LEN};
	struct ibv_qp_init_attr_ex attr = {
		.cap = {.max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 64},
		.qp_type = IBV_QPT_RC,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE,
	};
	struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};

	if (!(end->context = ibv_open_device(device)) || !(end->pd = ibv_alloc_pd(end->context)))
		die("a device");
	if (by_wr) {
		if (!(end->cq_ex = ibv_create_cq_ex(end->context, &cq)))
			die("a completion queue");
		end->cq = ibv_cq_ex_to_cq(end->cq_ex);
	} else if (!(end->cq = ibv_create_cq(end->context, 4095, NULL, NULL, 0))) {
		die("a completion queue");
	}
	attr.send_cq = attr.recv_cq = end->cq;
	attr.pd = end->pd;
	if (!(end->qp = ibv_create_qp_ex(end->context, &attr)))
		die("a queue pair");
	end->qp_ex = ibv_qp_to_qp_ex(end->qp);
	end->region = aligned_alloc(4096, REGION);
	memset(end->region, 0, REGION);
	if (!(end->mr = ibv_reg_mr(end->pd, end->region, REGION, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)))
		die("a region");
	if (ibv_query_gid(end->context, 1, 0, &end->gid))
		die("a GID");
	if (ibv_modify_qp(end->qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
		die("INIT");
}

static void connect_end(struct end *end, const struct end *peer)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_4096, .dest_qp_num = peer->qp->qp_num, .max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = peer->gid, .hop_limit = 64}},
		.timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1,
	};
	if (ibv_modify_qp(end->qp, &attr,
			  IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
				  IBV_QP_MIN_RNR_TIMER))
		die("RTR");
	attr.qp_state = IBV_QPS_RTS;
	if (ibv_modify_qp(end->qp, &attr,
			  IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
				  IBV_QP_MAX_QP_RD_ATOMIC))
		die("RTS");
}

static void supply(void)
{
	if (is_write)
		return;
	for (unsigned i = 0; i < REQUESTS; i++) {
		struct ibv_sge piece = {.addr = (uintptr_t)far.region, .length = 256, .lkey = far.mr->lkey};
		struct ibv_recv_wr receive = {.wr_id = i, .sg_list = &piece, .num_sge = 1}, *bad;
		if (ibv_post_recv(far.qp, &receive, &bad))
			die("a receive");
	}
}

/* Posted by lists that are made before, as a program that posts the same again would have them. */
static void make_lists(void)
{
	for (unsigned i = 0; i < REQUESTS; i++) {
		pieces[i] = (struct ibv_sge){.addr = (uintptr_t)payload, .length = is_write ? 8 : 64};
		requests[i] = (struct ibv_send_wr){
			.wr_id = i, .sg_list = &pieces[i], .num_sge = 1,
			.opcode = is_write ? IBV_WR_RDMA_WRITE : IBV_WR_SEND,
			.send_flags = IBV_SEND_INLINE | ((i + 1) % signal_every ? 0 : IBV_SEND_SIGNALED),
			.next = (i + 1) % batch ? &requests[i + 1] : NULL,
		};
		if (is_write) {
			requests[i].wr.rdma.remote_addr = (uintptr_t)far.region;
			requests[i].wr.rdma.rkey = far.mr->rkey;
		}
	}
}

__attribute__((noinline)) static void post_lists(void)
{
	struct ibv_send_wr *bad;
	for (unsigned i = 0; i < REQUESTS; i += batch)
		if (ibv_post_send(near.qp, &requests[i], &bad))
			die("a request");
}

__attribute__((noinline)) static void post_by_wr(void)
{
	struct ibv_qp_ex *qp = near.qp_ex;
	const uint64_t address = (uintptr_t)far.region;
	const uint32_t rkey = far.mr->rkey;
	unsigned silent = signal_every;
	for (unsigned i = 0; i < REQUESTS;) {
		ibv_wr_start(qp);
		for (unsigned n = 0; n < batch; n++, i++) {
			qp->wr_id = i;
			qp->wr_flags = 0;
			if (!--silent) {
				silent = signal_every;
				qp->wr_flags = IBV_SEND_SIGNALED;
			}
			if (is_write) {
				ibv_wr_rdma_write(qp, rkey, address);
				ibv_wr_set_inline_data(qp, payload, 8);
			} else {
				ibv_wr_send(qp);
				ibv_wr_set_inline_data(qp, payload, 64);
			}
		}
		if (ibv_wr_complete(qp))
			die("a request");
	}
}

__attribute__((noinline)) static unsigned poll_wcs(struct end *end, unsigned most)
{
	struct ibv_wc wc[REQUESTS];
	unsigned done = 0;
	int got;
	while ((got = ibv_poll_cq(end->cq, most, wc)) > 0) {
		for (int i = 0; i < got; i++)
			if (wc[i].status)
				die(ibv_wc_status_str(wc[i].status));
		done += got;
		/* Another call would find nothing, and our side makes none. */
		if (done == REQUESTS / (end == &near ? signal_every : 1))
			break;
	}
	return done;
}

__attribute__((noinline)) static unsigned poll_in_place(struct end *end)
{
	struct ibv_poll_cq_attr attr = {0};
	unsigned done = 0;
	if (ibv_start_poll(end->cq_ex, &attr))
		return 0;
	do {
		if (end->cq_ex->status)
			die(ibv_wc_status_str(end->cq_ex->status));
		done++;
	} while (!ibv_next_poll(end->cq_ex));
	ibv_end_poll(end->cq_ex);
	return done;
}

/* Each completion by a call of its own. */
__attribute__((noinline)) static unsigned poll_singly(struct end *end)
{
	struct ibv_poll_cq_attr attr = {0};
	unsigned done = 0;
	const unsigned expected = REQUESTS / signal_every;
	while (done < expected && !ibv_start_poll(end->cq_ex, &attr)) {
		if (end->cq_ex->status)
			die(ibv_wc_status_str(end->cq_ex->status));
		done++;
		ibv_end_poll(end->cq_ex);
	}
	return done;
}

static unsigned poll_near(void)
{
	if (!by_wr)
		return poll_wcs(&near, poll_most);
	return poll_most == 1 ? poll_singly(&near) : poll_in_place(&near);
}

static uint64_t bus_bytes(void)
{
	uint64_t both[2];
	if (mlx5_run_bus_bytes(0, both))
		die("the ledger");
	return both[0] + both[1];
}

int main(int argc, char **argv)
{
	static uint64_t post[ROUNDS], poll[ROUNDS], sum[ROUNDS];
	const uint64_t overhead = two_reads();
	uint64_t bytes = 0;
	if (argc != 6) {
		fprintf(stderr, "rdma: send|write BATCH SIGNAL POLL post|wr\n");
		return 1;
	}
	is_write = !strcmp(argv[1], "write");
	batch = atoi(argv[2]);
	signal_every = atoi(argv[3]);
	poll_most = atoi(argv[4]);
	by_wr = !strcmp(argv[5], "wr");
	if (!batch || REQUESTS % batch || !signal_every || REQUESTS % signal_every || !poll_most || poll_most > REQUESTS) {
		fprintf(stderr, "rdma: BATCH, SIGNAL and POLL divide %d\n", REQUESTS);
		return 1;
	}
	int count;
	struct ibv_device **devices = ibv_get_device_list(&count);
	if (!mlx5_run_step || !devices || count < 2) {
		fprintf(stderr, "rdma: this runs under mlx5-run --stepped with two devices on a cable\n");
		return 1;
	}
	open_end(&near, devices[0]);
	open_end(&far, devices[1]);
	connect_end(&near, &far);
	connect_end(&far, &near);
	make_lists();
	for (unsigned round = 0; round < WARM_UP + ROUNDS; round++) {
		if (round == WARM_UP)
			bytes = bus_bytes();
		supply();
		uint64_t start = now();
		if (by_wr)
			post_by_wr();
		else
			post_lists();
		uint64_t posted = now() - start;
		if (mlx5_run_step() < 0)
			die("the devices");
		if (!is_write && (by_wr ? poll_in_place(&far) : poll_wcs(&far, REQUESTS)) != REQUESTS) {
			fprintf(stderr, "rdma: not all arrived in round %u\n", round);
			return 1;
		}
		start = now();
		unsigned done = poll_near();
		uint64_t polled = now() - start;
		if (done != REQUESTS / signal_every) {
			fprintf(stderr, "rdma: %u completions in round %u\n", done, round);
			return 1;
		}
		if (round >= WARM_UP) {
			unsigned at = round - WARM_UP;
			post[at] = less(posted, overhead);
			poll[at] = less(polled, overhead);
			sum[at] = post[at] + poll[at];
		}
	}
	printf("first %.4f second %.4f both %.4f bytes %.4f\n", mean(post, ROUNDS, REQUESTS),
	       mean(poll, ROUNDS, REQUESTS / signal_every),
	       mean(sum, ROUNDS, REQUESTS), (double)(bus_bytes() - bytes) / ROUNDS / REQUESTS);
	return 0;
}
