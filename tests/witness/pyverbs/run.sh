. /witness/lib.sh

load mlx5_core ib_uverbs mlx5_ib rdma_ucm
one_host
ip address add $NEAR/24 dev "$near"
ip address add $FAR/24 dev "$far"
wait_for "an RDMA device" 20 ibdev $NEAR_PCI
sleep 2

# Debian packs the larger files.
mkdir /tmp/suite
cp -r /usr/share/doc/rdma-core/tests /tmp/suite/
gunzip /tmp/suite/tests/*.gz
cd /tmp/suite
PYTHONPATH=/tmp/suite python3 tests/run_tests.py --dev "$(ibdev $NEAR_PCI)" -v >/tmp/tests 2>&1 || true
grep -E ' \.\.\. |^(ERROR|FAIL):' /tmp/tests || true
# `Ran 321 tests`, and `FAILED (failures=1, errors=2, skipped=3)` or `OK (skipped=3)`.
count() { sed -n "s/.*$1=\([0-9]*\).*/\1/p" /tmp/tests | tail -n 1; }
ran=$(sed -n 's/^Ran \([0-9]*\) tests.*/\1/p' /tmp/tests | tail -n 1)
failures=$(count failures)
errors=$(count errors)
skipped=$(count skipped)
passed=$((${ran:-0} - ${failures:-0} - ${errors:-0} - ${skipped:-0}))
said="$passed passed, ${failures:-0} failed, ${errors:-0} in error, ${skipped:-0} skipped"
if [ $passed -ge 200 ] && [ "${failures:-0}${errors:-0}" = 00 ]; then ok "pyverbs: $said"; else tail -n 40 /tmp/tests; not_ok "pyverbs: $said"; fi
finish
