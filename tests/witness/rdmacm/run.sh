. /witness/lib.sh

load mlx5_core ib_uverbs mlx5_ib rdma_ucm
two_hosts
wait_for "an RDMA device" 20 ibdev $NEAR_PCI
wait_for "an RDMA device" 20 ibdev $FAR_PCI

# pair WHAT SERVER CLIENT: the server there, the client here; both have to end well.
pair() {
    there sh -c "$2" >/tmp/server 2>&1 &
    server=$!
    sleep 2
    if timeout 20 sh -c "$3" >/tmp/client 2>&1 && wait $server; then
        ok "$1"
    else
        tail -n 10 /tmp/server /tmp/client
        kill $server 2>/dev/null || true
        not_ok "$1"
    fi
}

pair "rping, 20 rounds with the data compared" "rping -s -a $FAR -C 20 -V" "rping -c -a $FAR -C 20 -V"
pair "ucmatose, reliable connections" "ucmatose -b $FAR -c 2 -C 5" "ucmatose -s $FAR -c 2 -C 5"
pair "udaddy, datagrams" "udaddy -b $FAR -c 2 -C 5" "udaddy -s $FAR -c 2 -C 5"
pair "rdma_server and rdma_client" "rdma_server -s $FAR" "rdma_client -s $FAR"
pair "rdma_xserver and rdma_xclient" "rdma_xserver -c r" "rdma_xclient -c r -s $FAR"
pair "cmtime, 20 connections" "cmtime -b $FAR -c 20" "cmtime -s $FAR -c 20"
pair "rstream, streams of rsockets" "rstream -b $FAR -S 4096 -C 50" "rstream -s $FAR -S 4096 -C 50"
pair "riostream, writes of rsockets" "riostream -b $FAR -S 4096 -C 50" "riostream -s $FAR -S 4096 -C 50"
# Groups have a way of their own.
ip route add 239.0.0.0/8 dev "$near"
ip -n far route add 239.0.0.0/8 dev "$far"
pair "mckey, a multicast group" "mckey -m 239.1.2.3 -b $FAR" "mckey -m 239.1.2.3 -b $NEAR -s"

# libfabric's endpoints over verbs: connected ones, reliable datagrams on top of those, and datagrams. It looks itself up by name. A server
# of the first two has to be told its address: by itself it binds to localhost, which no RDMA device has.
echo "127.0.0.1 localhost $(uname -n)" >>/etc/hosts
fabric() { pair "fi_pingpong, $1" "fi_pingpong -p '$2' -e $3 -I 50 -c $4" "fi_pingpong -p '$2' -e $3 -I 50 -c $FAR"; }
fabric "connected endpoints" verbs msg "-s $FAR"
fabric "reliable datagrams" "verbs;ofi_rxm" rdm "-s $FAR"
fabric "datagrams" verbs dgram ""
finish
