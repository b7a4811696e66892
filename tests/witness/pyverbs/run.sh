# The suite module by module, so that one that stands still is ended and named. What does not fail passed or was skipped, and
# the reasons for that are told at the end.
. /witness/lib.sh

# Tests that have to pass. Of the others most are for other vendors' cards, graphics processors, an e-switch, steering by software.
LEAST=213
# Seconds for a module.
LIMIT=400

load mlx5_core ib_uverbs mlx5_ib rdma_ucm
one_host
ip address add $NEAR/24 dev "$near"
ip address add $FAR/24 dev "$far"
wait_for "an RDMA device" 20 ibdev $NEAR_PCI
device=$(ibdev $NEAR_PCI)
echo 64 >/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages
sleep 2

# Debian packs the larger files.
mkdir /tmp/suite
cp -r /usr/share/doc/rdma-core/tests /tmp/suite/
gunzip /tmp/suite/tests/*.gz
cd /tmp/suite
export PYTHONPATH=/tmp/suite PYTHONFAULTHANDLER=1 NO_COLOR=1

# count WHAT: of `FAILED (failures=1, errors=2, skipped=3)` or `OK (skipped=3)`.
count() {
    number=$(sed -n "s/^\(OK\|FAILED\) (.*$1=\([0-9]*\).*/\2/p" /tmp/module | tail -n 1)
    echo "${number:-0}"
}

ran=0
failures=0
skipped=0
for file in tests/test_*.py; do
    module=$(basename "$file" .py)
    timeout -k 5 -s ABRT $LIMIT python3 -u tests/run_tests.py --dev "$device" -v "tests.$module" >/tmp/module 2>&1 || true
    here=$(sed -n 's/^Ran \([0-9]*\) test.*/\1/p' /tmp/module | tail -n 1)
    lost=$(($(count failures) + $(count errors)))
    missing=$(count skipped)
    grep -E ' \.\.\. ' /tmp/module | grep -Ev ' ok$' || true
    grep -E '\.\.\. skipped ' /tmp/module | sed 's/.*\.\.\. skipped //' >>/tmp/reasons || true
    # Where a card has no meters this test says so by the wrong exception, which makes it an error.
    if grep -q 'PyverbsRDMAError: Reg C is not supported' /tmp/module; then
        lost=$((lost - 1))
        missing=$((missing + 1))
        echo "'Reg C is not supported' (test_flow_meter)" >>/tmp/reasons
    fi
    if [ -z "$here" ]; then
        tail -n 40 /tmp/module
        not_ok "$module did not end"
    elif [ $lost != 0 ]; then
        sed -n '/^======/,$p' /tmp/module
        not_ok "$module: $lost of $here failed"
    else
        ok "$module: $((here - missing)) passed, $missing skipped"
    fi
    ran=$((ran + ${here:-0}))
    failures=$((failures + lost))
    skipped=$((skipped + missing))
done
echo "Reasons for skipping:"
sort /tmp/reasons | uniq -c | sort -rn
passed=$((ran - failures - skipped))
said="$passed passed, $failures failed, $skipped skipped"
if [ $failures = 0 ] && [ $passed -ge $LEAST ]; then ok "pyverbs: $said"; else not_ok "pyverbs: $said, where $LEAST have to pass"; fi
finish
