# For a static busybox, which starts its own applets: pipelines, subshells, background jobs.
set -e
i=0
while [ $i -lt 40 ]; do
    i=$((i + 1))
    busybox seq 1000 | busybox sort -r | busybox sha256sum >/dev/null
    (busybox true; exit 0)
    x=$(busybox expr $i + 1)
    busybox awk 'BEGIN { for (i = 0; i < 100000; i++) s += i }' &
    [ $((i % 4)) -ne 0 ] || wait
done
wait
