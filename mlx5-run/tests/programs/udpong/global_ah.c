/*
 * Lets librdmacm's datagram sockets run on RoCE, for the tests of udpong.
 *
 * librdmacm makes an address handle of the socket's own queue pair with nothing but a LID (rdma-core librdmacm/rsocket.c,
 * ds_add_qp_dest). RoCE has no LIDs and Linux refuses it with EINVAL (drivers/infiniband/core/verbs.c, rdma_check_ah_attr), so that
 * rconnect() fails there whatever the device. Here such a handle gets the port's own GID: nothing else of the original is changed.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <string.h>

/* Without it, those of version 1.0 are taken. Source: rdma-core libibverbs/libibverbs.map.in. */
#define VERSION "IBVERBS_1.1"

/* Layouts: rdma-core libibverbs/verbs.h. */
struct ah_attr {
	uint8_t dgid[16];
	uint32_t flow_label;
	uint8_t sgid_index, hop_limit, traffic_class;
	uint16_t dlid;
	uint8_t sl, src_path_bits, static_rate, is_global, port_num;
};
struct pd {
	void *context;
};

void *ibv_create_ah(struct pd *pd, struct ah_attr *attr)
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };
	void *(*create_ah)(struct pd *, struct ah_attr *) = dlvsym(RTLD_NEXT, "ibv_create_ah", VERSION);
	int (*query_gid)(void *, uint8_t, int, uint8_t *) = dlvsym(RTLD_NEXT, "ibv_query_gid", VERSION);
	struct ah_attr own = *attr;

	for (int index = 0; !own.is_global && index < 16; index++) {
		/* The GID of an IPv4 address, which the tests give the port. */
		if (query_gid(pd->context, own.port_num, index, own.dgid) ||
		    memcmp(own.dgid, mapped, sizeof(mapped)))
			continue;
		own.is_global = 1;
		own.sgid_index = index;
		own.hop_limit = 64;
	}
	return create_ah(pd, &own);
}
