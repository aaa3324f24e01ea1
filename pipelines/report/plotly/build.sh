#!/usr/bin/env bash
# Makes plotly.min.js.gz and LICENSES.txt: the part of plotly.js that page.js draws with. Needs npm and node.
set -euo pipefail
VERSION=4.1.1 ESBUILD=0.28.2
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
npm init -y >/dev/null
npm install --silent --ignore-scripts "plotly.js@$VERSION" "esbuild@$ESBUILD"
# The core draws scatter by itself.
cat >entry.js <<'JS'
const Plotly = require("plotly.js/lib/core");
Plotly.register([require("plotly.js/lib/bar"), require("plotly.js/lib/heatmap")]);
module.exports = Plotly;
JS
banner="/*! plotly.js v$VERSION (scatter, bar, heatmap), Copyright Plotly, Inc., MIT license; others: LICENSES.txt of jbod */"
npx esbuild entry.js --bundle --minify --charset=utf8 --legal-comments=none --format=iife --global-name=Plotly \
  --target=es2020 --define:global=window --define:define.amd=false --alias:stream=stream-browserify \
  "--banner:js=$banner" --metafile=meta.json --outfile=plotly.min.js --log-level=warning
gzip -9 -n -c plotly.min.js >"$here/plotly.min.js.gz"
node - >"$here/LICENSES.txt" <<'JS'
const fs = require("fs");
const inputs = Object.values(require("./meta.json").outputs).flatMap(output => Object.entries(output.inputs));
const used = inputs.filter(([file, input]) => file.endsWith("js") && input.bytesInOutput).map(([file]) => file);
const packages = new Set(used.map(file => file.match(/^(.*node_modules\/(?:@[^/]+\/)?[^/]+)/)?.[1]).filter(Boolean));
for (const folder of [...packages].sort()) {
  const about = JSON.parse(fs.readFileSync(`${folder}/package.json`));
  const file = fs.readdirSync(folder).find(name => /^licen[cs]e/i.test(name));
  const text = file ? fs.readFileSync(`${folder}/${file}`, "utf8").trim() : `License: ${about.license}`;
  console.log(`== ${about.name} ${about.version}\n\n${text}\n`);
}
JS
