. /witness/lib.sh

load mlx5_core ib_uverbs mlx5_ib nvmet-rdma nvme-rdma
# A disk of its own kind alone, below.
modprobe null_blk nr_devices=0
one_host
ip address add $NEAR/24 dev "$near"
ip address add $FAR/24 dev "$far"
wait_for "an RDMA device" 20 ibdev $NEAR_PCI
wait_for "an RDMA device" 20 ibdev $FAR_PCI

# Neither driver knows of network namespaces. Both addresses are of this host, so that what is between them would not leave it, unless
# routes say so before the local ones are looked at.
ip route add table 100 $FAR dev "$near"
ip route add table 100 $NEAR dev "$far"
ip rule add pref 10 lookup local
ip rule add pref 5 to $FAR lookup 100
ip rule add pref 6 to $NEAR lookup 100
ip rule delete pref 0
ip neigh replace $FAR lladdr "$(cat "/sys/class/net/$far/address")" dev "$near"
ip neigh replace $NEAR lladdr "$(cat "/sys/class/net/$near/address")" dev "$far"
sleep 2

grep -q configfs /proc/mounts || mount -t configfs none /sys/kernel/config
disk=/sys/kernel/config/nullb/witness
mkdir $disk
echo 1 >$disk/memory_backed
echo 64 >$disk/size
echo 4096 >$disk/blocksize
echo 1 >$disk/power
behind=/dev/witness

target=/sys/kernel/config/nvmet
mkdir $target/subsystems/witness
echo 1 >$target/subsystems/witness/attr_allow_any_host
mkdir $target/subsystems/witness/namespaces/1
echo "$behind" >$target/subsystems/witness/namespaces/1/device_path
echo 1 >$target/subsystems/witness/namespaces/1/enable
mkdir $target/ports/1
echo rdma >$target/ports/1/addr_trtype
echo ipv4 >$target/ports/1/addr_adrfam
echo $FAR >$target/ports/1/addr_traddr
echo 4420 >$target/ports/1/addr_trsvcid
ln -s $target/subsystems/witness $target/ports/1/subsystems/witness

before=$(counter "$near" rx_packets_phy)
connect() { echo "transport=rdma,traddr=$FAR,host_traddr=$NEAR,trsvcid=4420,nqn=witness,nr_io_queues=2" >/dev/nvme-fabrics; }
check "the host connects" connect
wait_for "a disk" 20 test -b /dev/nvme0n1

dd if=/dev/urandom of=/tmp/data bs=1M count=16 2>/dev/null
# through BLOCK: written in such blocks, and read again in them.
through() {
    check "written in blocks of $1" dd if=/tmp/data of=/dev/nvme0n1 bs="$1" oflag=direct
    check "read behind the target" dd if="$behind" of=/tmp/behind bs=1M count=16 iflag=direct
    check "it is there" cmp /tmp/data /tmp/behind
    check "read in blocks of $1" dd if=/dev/nvme0n1 of=/tmp/back bs="$1" count=$((16777216 / $2)) iflag=direct
    check "as it was written" cmp /tmp/data /tmp/back
    dd if=/dev/urandom of=/tmp/data bs=1M count=16 2>/dev/null
}

through 1M 1048576
through 128K 131072
through 16K 16384
came=$(($(counter "$near" rx_packets_phy) - before))
if [ $came -ge 10000 ]; then ok "$came packets came over the cable"; else not_ok "only $came packets came over the cable"; fi
check "the host disconnects" sh -c "echo 1 >/sys/class/nvme/nvme0/delete_controller"
rm $target/ports/1/subsystems/witness
finish
