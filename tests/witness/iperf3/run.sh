. /witness/lib.sh

load mlx5_core vxlan geneve ip_gre ipip
two_hosts

# way WHAT ADDRESS: both directions. A checksum that is wrong is dropped where it comes in, and TCP crawls or stands still.
way() {
    for direction in "" -R; do
        there iperf3 -s -1 >/tmp/server 2>&1 &
        server=$!
        sleep 1
        # shellcheck disable=SC2086 # no word where there is no direction
        if timeout 30 iperf3 -c "$2" -t 3 -f m $direction >/tmp/client 2>&1; then
            rate=$(awk '/receiver/ { print $7 }' /tmp/client)
            if [ "${rate%.*}" -ge 5 ]; then ok "$1 $direction: $rate Mbit/s"; else not_ok "$1 $direction: $rate Mbit/s"; fi
        else
            tail -n 20 /tmp/client
            not_ok "$1 $direction"
        fi
        kill $server 2>/dev/null || true
        wait $server 2>/dev/null || true
    done
}

# Linux's own choice on cards where entries of send queues change keys: strides of one buffer, whose pages such entries map.
striding() { ethtool --show-priv-flags "$near" | grep -q 'rx_striding_rq *: on'; }
check "striding receive is on" striding
way "plain" $FAR

# both OPTION NAME VALUE: on both sides.
both() {
    ethtool "$1" "$near" "$2" "$3"
    there ethtool "$1" "$far" "$2" "$3"
}

# TCP joined by the card, which Linux has with striding receive alone.
both -K lro on
before=$(counter "$near" rx_lro_packets)
way "joined" $FAR
joined=$(($(counter "$near" rx_lro_packets) - before))
if [ $joined -ge 100 ]; then ok "$joined packets were joined"; else not_ok "only $joined packets were joined"; fi
both -K lro off
both --set-priv-flags rx_striding_rq off
way "a buffer a packet" $FAR
both --set-priv-flags rx_striding_rq on

# over WHAT NEAR-WORDS FAR-WORDS: both ends of a link of their own on top, made by `ip link add` with these words.
over() {
    kind=$1
    # shellcheck disable=SC2086 # words
    ip link add name over0 $2
    # shellcheck disable=SC2086
    ip -n far link add name over0 $3
    ip address add 10.5.0.1/24 dev over0
    ip -n far address add 10.5.0.2/24 dev over0
    ip link set over0 up
    ip -n far link set over0 up
    wait_for "an answer over $kind" 10 ping -q -c 1 -W 1 10.5.0.2
    way "$kind" 10.5.0.2
    ip link delete over0
    ip -n far link delete over0
}

over VLAN "link $near type vlan id 5" "link $far type vlan id 5"
over VXLAN "type vxlan id 5 local $NEAR remote $FAR dstport 4789" "type vxlan id 5 local $FAR remote $NEAR dstport 4789"
over Geneve "type geneve id 5 remote $FAR" "type geneve id 5 remote $NEAR"
over GRE "type gre local $NEAR remote $FAR" "type gre local $FAR remote $NEAR"
over "IP in IP" "type ipip local $NEAR remote $FAR" "type ipip local $FAR remote $NEAR"
finish
