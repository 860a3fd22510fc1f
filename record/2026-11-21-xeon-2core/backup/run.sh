BIN=$1
[ -f a.spt ] || { seq 1 7000000 | awk '{printf "%016d\t%0100d\n",$1,$1}' | $BIN load -q a.spt --format tsv; }
ls -ls a.spt
cat a.spt > /dev/null
t() { local s=$(date +%s.%N); "$@"; local e=$(date +%s.%N); awk -v s=$s -v e=$e -v n="$NAME" 'BEGIN{printf "%s %.2f s\n", n, e-s}'; }
for i in 1 2 3; do
  rm -f b.spt; NAME="backup" t $BIN backup -q a.spt b.spt
  rm -f b.spt; NAME="cp+sync" t sh -c 'cp a.spt b.spt && sync b.spt'
  rm -f b.spt; NAME="cp" t cp a.spt b.spt
  NAME="backup to stdout, /dev/null" t sh -c "$BIN backup -q a.spt - > /dev/null"
done
