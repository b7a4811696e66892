. /witness/lib.sh

load mlx5_core
two_hosts

# Link, speed, firmware, and a frame to itself, which the card has to bring back.
ethtool -t "$near" >/tmp/said 2>&1 || true
cat /tmp/said
for name in "Link Test" "Speed Test" "Health Test" "Loopback Test"; do
    if grep -q "^$name[[:space:]]*0$" /tmp/said; then ok "$name"; else not_ok "$name"; fi
done
if grep -q "The test result is PASS" /tmp/said; then ok "the whole of them"; else not_ok "the whole of them"; fi
check "the cable carries frames afterwards" ping -q -c 3 -i 0.2 -W 2 $FAR

# The firmware's version by the registers of its components, as by the card's first registers; what runs is what is stored.
version=$(ethtool -i "$near" | awk '$1 == "firmware-version:" { print $2 }')
devlink dev info "pci/$NEAR_PCI" >/tmp/said 2>&1 || true
cat /tmp/said
if [ "$(grep -c "fw.version $version\$" /tmp/said)" = 2 ]; then ok "firmware $version"; else not_ok "firmware $version"; fi

# What is plugged in.
ethtool -m "$near" >/tmp/said 2>&1 || true
cat /tmp/said
for said in "0x11 (QSFP28)" "(No separable connector)" "100G Base-CR4" "Pollux" "MODEL-CABLE-1M"; do
    if grep -qF "$said" /tmp/said; then ok "the module says $said"; else not_ok "the module says $said"; fi
done

# Frames to a stranger reach no rule: the vport's environment counts them, for the driver and for its reporter.
missed=$(counter "$near" rx_steer_missed_packets)
there ip neigh add 10.0.0.99 lladdr 02:00:00:00:00:99 dev "$far"
there ping -q -c 5 -i 0.2 -W 1 10.0.0.99 >/dev/null 2>&1 || true
missed=$(($(counter "$near" rx_steer_missed_packets) - missed))
if [ $missed -ge 5 ]; then ok "$missed packets missed the rules"; else not_ok "$missed packets missed the rules"; fi
devlink health diagnose "pci/$NEAR_PCI" reporter vnic >/tmp/said 2>&1 || true
cat /tmp/said
for name in total_error_queues comp_eq_overrun cq_overrun invalid_command nic_receive_steering_discard; do
    if grep -q "$name" /tmp/said; then ok "the reporter has $name"; else not_ok "the reporter has $name"; fi
done

# Interrupts wait for so many microseconds, of the first packet's arrival or of the last one's.
check "moderation" ethtool -C "$near" adaptive-rx off rx-usecs 50 rx-frames 64
for mode in off on; do
    check "time from each completion: $mode" ethtool --set-priv-flags "$near" rx_cqe_moder $mode
    check "frames go on" ping -q -c 5 -i 0.2 -W 2 $FAR
done

# spread HASH: packets from many addresses reach both queues, and all of them are answered.
spread() {
    check "the hash is $1" ethtool -X "$near" hfunc "$1"
    ethtool -x "$near" | grep -q "$1: on" && ok "it says so" || not_ok "it says so"
    first=$(counter "$near" rx0_packets)
    second=$(counter "$near" rx1_packets)
    lost=0
    for last in $(seq 10 41); do
        there ping -q -c 1 -W 2 -I "10.0.0.$last" $NEAR >/dev/null 2>&1 || lost=$((lost + 1))
    done
    first=$(($(counter "$near" rx0_packets) - first))
    second=$(($(counter "$near" rx1_packets) - second))
    said="$first and $second packets, $lost without an answer"
    if [ $lost = 0 ] && [ $first -ge 4 ] && [ $second -ge 4 ]; then ok "$1 spreads: $said"; else not_ok "$1 spreads: $said"; fi
}

for last in $(seq 10 41); do ip -n far address add "10.0.0.$last/24" dev "$far"; done
check "two queues" ethtool -L "$near" combined 2
spread xor
spread toeplitz

# times: the least round trip of a long packet, in milliseconds.
least() { ping -q -c 5 -i 0.1 -W 5 -s 60000 $FAR | sed -n 's|^r.* = \([0-9]*\).*|\1|p'; }

# 8 Mbit/s are 60 KB in 60 ms, of which a card may send a burst at once.
echo "without a limit: $(least) ms"
for queue in /sys/class/net/"$near"/queues/tx-*; do
    check "a rate for $(basename "$queue")" sh -c "echo 8 >$queue/tx_maxrate"
done
slow=$(least)
if [ "${slow:-0}" -ge 45 ]; then ok "8 Mbit/s: $slow ms"; else not_ok "8 Mbit/s: $slow ms"; fi
for queue in /sys/class/net/"$near"/queues/tx-*; do
    check "no rate for $(basename "$queue")" sh -c "echo 0 >$queue/tx_maxrate"
done
fast=$(least)
if [ "${fast:-99}" -lt "${slow:-0}" ]; then ok "and faster again: $fast ms"; else not_ok "and faster again: $fast ms"; fi
finish
