# What the scripts of witnesses share; each begins with `. /witness/lib.sh`. They run under `sh -eu`.

# The functions, as the host puts them behind root ports 1 and 2, and what they are called in the scripts' network.
NEAR_PCI=0000:01:00.0
FAR_PCI=0000:02:00.0
NEAR=10.0.0.1
FAR=10.0.0.2

failed=0

ok() { echo "ok $*"; }

not_ok() {
    echo "not ok $*"
    failed=1
}

# check WHAT COMMAND..: what the command says is shown where it fails.
check() {
    what=$1
    shift
    if "$@" >/tmp/said 2>&1; then
        ok "$what"
    else
        status=$?
        tail -n 20 /tmp/said
        not_ok "$what: '$*' ended with status $status"
    fi
}

# wait_for WHAT SECONDS COMMAND..
wait_for() {
    what=$1
    turns=$(($2 * 10))
    shift 2
    until "$@" >/dev/null 2>&1; do
        turns=$((turns - 1))
        if [ $turns -le 0 ]; then
            not_ok "$what did not come"
            exit 1
        fi
        sleep 0.1
    done
}

# The network interface, or the RDMA device, of a function.
netdev() { ls "/sys/bus/pci/devices/$1/net"; }
ibdev() { ls "/sys/bus/pci/devices/$1/infiniband"; }

# load MODULE..: the drivers, and what they make of both functions.
load() {
    for module in "$@"; do modprobe "$module"; done
    wait_for "an interface" 20 netdev $NEAR_PCI
    wait_for "an interface" 20 netdev $FAR_PCI
    ip link set lo up
}

carrier() { [ "$(cat "/sys/class/net/$1/carrier")" = 1 ]; }

# Both functions in this host, up.
one_host() {
    near=$(netdev $NEAR_PCI)
    far=$(netdev $FAR_PCI)
    ip link set "$near" up
    ip link set "$far" up
    wait_for "a carrier" 10 carrier "$near"
    wait_for "a carrier" 10 carrier "$far"
}

# Both functions as two hosts: the second in the namespace `far`, so that what they say to each other takes the wire.
two_hosts() {
    near=$(netdev $NEAR_PCI)
    far=$(netdev $FAR_PCI)
    ip netns add far
    ip link set "$far" netns far
    ip -n far link set lo up
    ip address add $NEAR/24 dev "$near"
    ip -n far address add $FAR/24 dev "$far"
    ip link set "$near" up
    ip -n far link set "$far" up
    wait_for "a carrier" 10 carrier "$near"
    wait_for "an answer" 20 ping -q -c 1 -W 1 $FAR
}

# there COMMAND..: on the second host.
there() { ip netns exec far "$@"; }

# counter INTERFACE NAME: one of `ethtool -S`.
counter() { ethtool -S "$1" | awk -v name="$2:" '$1 == name { print $2; exit }'; }

# testpmd KEYS WORDS..: DPDK's, ten seconds long between both functions in this host, which have KEYS behind their addresses.
# Then `came` are the unicast frames that came in at the first meanwhile. Only those count: what the kernel says to groups goes
# round as well.
testpmd() {
    keys=$1
    shift
    echo 256 >/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages
    mkdir -p /var/run /var/tmp
    before=$(counter "$near" rx_vport_unicast_packets)
    status=0
    timeout -s INT 10 dpdk-testpmd -l 0,1 --huge-dir /dev/hugepages -m 256 -a "$NEAR_PCI$keys" -a "$FAR_PCI$keys" -- \
        --auto-start --nb-cores=1 --stats-period=1 --no-flush-rx --total-num-mbufs=4096 "$@" >/tmp/testpmd 2>&1 ||
        status=$?
    came=$(($(counter "$near" rx_vport_unicast_packets) - before))
    # timeout says 124 where it had to end what it ran.
    case $status in 0 | 124) ;; *) tail -n 30 /tmp/testpmd; not_ok "testpmd $*: status $status" ;; esac
    grep -q 'Accumulated forward statistics' /tmp/testpmd || { tail -n 30 /tmp/testpmd; not_ok "testpmd $*: no statistics"; }
}

# came_in WHAT LEAST: so many did.
came_in() {
    if [ $came -ge "$2" ]; then
        ok "$1: $came unicast frames came in"
    else
        tail -n 30 /tmp/testpmd
        not_ok "$1: only $came unicast frames came in"
    fi
}

# The end of every script.
finish() { exit $failed; }
