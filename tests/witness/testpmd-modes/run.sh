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
mode flowgen 5000
# Nobody takes what comes, and the cable loses nothing: as many as there are buffers for.
mode txonly 1000
# These send nothing by themselves, so that only the first burst comes in.
for name in rxonly icmpecho; do mode $name 16 --tx-first; done
finish
