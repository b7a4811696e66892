# Modes that pass frames on begin with a burst of testpmd's own; the others make frames, or take what the other port makes.
. /witness/lib.sh

load mlx5_core ib_uverbs mlx5_ib
one_host

# mode NAME LEAST WORDS..: at least LEAST unicast frames come in.
mode() {
    name=$1
    least=$2
    shift 2
    testpmd "" --forward-mode="$name" "$@"
    came_in "$name" "$least"
}

for name in io mac macswap csum 5tswap noisy; do mode $name 5000 --tx-first; done
for name in txonly flowgen; do mode $name 5000; done
# Nothing sends: what counts is that they start, and end in order.
for name in rxonly icmpecho; do mode $name 0; done
finish
