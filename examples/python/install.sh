#!/usr/bin/env bash
# Installs what the examples need into the folder named, unless it holds just that.
set -euo pipefail
target="$1"
cd "$(dirname "${BASH_SOURCE[0]}")"
want="$(python3 --version; cat requirements.txt)"
[[ "$(cat "$target/installed" 2>/dev/null)" == "$want" ]] && exit
python3 -c 'import sys; sys.exit(sys.version_info < (3, 11) and "the examples need Python 3.11 or newer, and this is " + sys.version)'
echo "installing the packages of examples/python into $target" >&2
python3 -m venv --clear "$target"
"$target/bin/python" -m pip install --quiet --disable-pip-version-check -r requirements.txt >&2
printf '%s\n' "$want" >"$target/installed"
