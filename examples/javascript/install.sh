#!/usr/bin/env bash
# Installs what the examples need into node_modules of the folder named, unless it holds
# just that.
set -euo pipefail
mkdir -p "$1"
target="$(cd "$1" && pwd)"
cd "$(dirname "${BASH_SOURCE[0]}")"
want="$(node --version; cat package.json)"
[[ "$(cat "$target/node_modules/installed" 2>/dev/null)" == "$want" ]] && exit
node -e 'if (parseInt(process.versions.node) < 20) { console.error("the examples need Node 20 or newer, and this is " + process.version); process.exit(1); }'
echo "installing the packages of examples/javascript into $target/node_modules" >&2
[[ package.json -ef "$target/package.json" ]] || cp package.json "$target/"
npm install --prefix "$target" --no-audit --no-fund --no-package-lock --silent >&2
printf '%s\n' "$want" >"$target/node_modules/installed"
