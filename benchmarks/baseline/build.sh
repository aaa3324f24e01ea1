#!/usr/bin/env bash
# Fetch Kafka's jars with Maven and compile the baseline into build/baseline. Prints its class path.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=$here/../../build/baseline
mkdir -p "$out/classes"
out=$(cd "$out" && pwd)
if [ ! -f "$out/.built" ] || [ -n "$(find "$here" -newer "$out/.built" -print -quit)" ]; then
  (cd "$here" && mvn -q -B dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$out/libs") >&2
  javac --release 17 -Xlint:-options -cp "$out/libs/*" -d "$out/classes" "$here"/src/jbod/*.java >&2
  touch "$out/.built"
fi
echo "$out/classes:$out/libs/*"
