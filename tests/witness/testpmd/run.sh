# testpmd puts a burst of frames of its own on the wires and passes on what comes. These frames are to an address that is
# neither port's, so that they come round only if the ports take what is not theirs, as testpmd asks.
. /witness/lib.sh

load mlx5_core ib_uverbs mlx5_ib
one_host
testpmd "" --forward-mode=io --tx-first
came_in "DevX objects" 5000
testpmd ",dv_flow_en=0" --forward-mode=io --tx-first
came_in "verbs objects" 5000
finish
