. /witness/lib.sh

load mlx5_core ib_uverbs mlx5_ib rdma_ucm
one_host
device=$(ibdev $NEAR_PCI)
sleep 2

# rdma-core's own tests of flows. Debian packs the larger files.
mkdir /tmp/suite
cp -r /usr/share/doc/rdma-core/tests /tmp/suite/
gunzip /tmp/suite/tests/*.gz
cd /tmp/suite
export PYTHONPATH=/tmp/suite PYTHONFAULTHANDLER=1 NO_COLOR=1

# The suite takes a card without an e-switch for one whose e-switch encapsulates.
mkdir /tmp/bin
cat >/tmp/bin/devlink <<'END'
#!/bin/sh
case "$*" in
    "dev eswitch show "*) echo "$4: mode legacy" ;;
    *) exec /usr/sbin/devlink "$@" ;;
esac
END
chmod +x /tmp/bin/devlink
export PATH=/tmp/bin:$PATH

# suite MODULE TEST..: none fails, and these, which need a card that changes packets, are not skipped.
suite() {
    module=$1
    shift
    status=0
    timeout -k 5 -s ABRT 400 python3 -u tests/run_tests.py --dev "$device" -v "tests.$module" >/tmp/module 2>&1 || status=$?
    grep -E ' \.\.\. ' /tmp/module | grep -Ev ' ok$' || true
    # Where a card has no meters one test says so by the wrong exception, which makes it an error.
    if grep -q 'PyverbsRDMAError: Reg C is not supported' /tmp/module && grep -q '^FAILED (errors=1, skipped=' /tmp/module; then
        status=0
    fi
    if [ $status = 0 ]; then
        ok "$module: $(sed -n 's/^\(Ran .*\)/\1/p' /tmp/module), $(tail -n 1 /tmp/module)"
    else
        sed -n '/^======/,$p' /tmp/module
        tail -n 20 /tmp/module
        not_ok "$module ended with status $status"
    fi
    for test in "$@"; do
        # A test's name, what it is for, how it ended: on two lines.
        if grep -A 3 "^$test " /tmp/module | grep -m 1 ' \.\.\. ' | grep -q 'ok$'; then ok "$test"; else not_ok "$test"; fi
    done
}

suite test_flow
suite test_mlx5_flow test_tx_packet_reformat
suite test_mlx5_dr test_root_tbl_modify_header_rule test_packet_reformat_root_l2_gre test_packet_reformat_root_l3_gre \
    test_packet_reformat_root_l2_geneve
cd /

# The rest is between two hosts.
ip address flush dev "$near"
ip address flush dev "$far"
ip link set "$near" down
ip link set "$far" down
two_hosts
for last in 40 41; do ip -n far address add "10.0.0.$last/24" dev "$far"; done

# answered FROM: four packets from there, all of them answered; silent FROM: none.
answered() { there ping -q -c 4 -i 0.2 -W 2 -I "$1" $NEAR 2>/dev/null | grep -q ' 4 received'; }
silent() { there ping -q -c 2 -i 0.2 -W 1 -I "$1" $NEAR 2>/dev/null | grep -q ' 0 received'; }

# ethtool's rules, which are flow tables of Linux's driver.
check "two queues" ethtool -L "$near" combined 2
check "rules are on" ethtool -K "$near" ntuple on
check "a rule to a queue" ethtool -N "$near" flow-type ip4 src-ip 10.0.0.40 action 1 loc 0
before=$(counter "$near" rx1_packets)
check "its packets are answered" answered 10.0.0.40
came=$(($(counter "$near" rx1_packets) - before))
if [ $came -ge 4 ]; then ok "queue 1 got them"; else not_ok "queue 1 got $came"; fi
check "a rule that drops" ethtool -N "$near" flow-type ip4 src-ip 10.0.0.41 action -1 loc 1
check "its packets are dropped" silent 10.0.0.41
check "others are not" answered 10.0.0.40
check "a rule goes" ethtool -N "$near" delete 1
check "nothing is dropped" answered 10.0.0.41
check "the other goes" ethtool -N "$near" delete 0

# tc's rules take Linux's option MLX5_CLS_ACT, which Debian's kernels do not have so far.
if ethtool -k "$near" | grep -q '^hw-tc-offload: o[nf]*$'; then
    check "tc is offloaded" ethtool -K "$near" hw-tc-offload on
    check "rules of what comes in" tc qdisc add dev "$near" ingress
    check "a rule that drops, in the card alone" \
        tc filter add dev "$near" ingress protocol ip pref 1 flower skip_sw ip_proto icmp src_ip 10.0.0.41 action drop
    check "its packets are dropped" silent 10.0.0.41
    check "others are not" answered 10.0.0.40
    tc -s filter show dev "$near" ingress
    check "the rule goes" tc filter del dev "$near" ingress pref 1
    check "a rule that changes headers" \
        tc filter add dev "$near" ingress protocol ip pref 2 flower skip_sw ip_proto udp dst_port 6000 \
        action pedit ex munge udp dport set 7000 munge ip ttl set 9 pipe csum ip and udp pipe action pass
    python3 -c '
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.IPPROTO_IP, socket.IP_RECVTTL, 1)
s.bind(("10.0.0.1", 7000))
s.settimeout(20)
data, extra, _, _ = s.recvmsg(100, 100)
print(data, [int.from_bytes(value[:4], "little") for _, _, value in extra])' >/tmp/changed 2>&1 &
    receiver=$!
    sleep 3
    there python3 -c 'import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"hello", ("10.0.0.1", 6000))'
    wait $receiver || true
    cat /tmp/changed
    if grep -q "b'hello' \[9\]" /tmp/changed; then ok "port and TTL are changed"; else not_ok "port and TTL are changed"; fi
else
    echo "# hw-tc-offload is fixed: this kernel was made without MLX5_CLS_ACT"
fi
finish
