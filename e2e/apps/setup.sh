#!/usr/bin/env bash
# Installs what the examples need into the user's cache folder, once for each set of
# requirements, and prints the folder: "setup.sh python" and "setup.sh javascript".
set -Eeuo pipefail
examples="$(cd "$(dirname "${BASH_SOURCE[0]}")/../../examples" && pwd)"
cache="${XDG_CACHE_HOME:-$HOME/.cache}/retryledger/examples"

# folder NAME VERSION FILE prints where the requirements of FILE go.
folder() {
  printf '%s/%s-%s\n' "$cache" "$1" "$({ printf '%s\n' "$2"; cat "$3"; } | cksum | tr ' ' '-')"
}

case "${1:-}" in
python)
  target="$(folder python "$(python3 --version)" "$examples/python/requirements.txt")"
  install() {
    python3 -m venv "$target"
    "$target/bin/python" -m pip install --quiet --disable-pip-version-check -r "$examples/python/requirements.txt"
  }
  ;;
javascript)
  target="$(folder javascript "$(node --version)" "$examples/javascript/package.json")"
  install() {
    mkdir -p "$target"
    cp "$examples/javascript/package.json" "$target/"
    npm install --prefix "$target" --no-audit --no-fund --no-package-lock --silent
  }
  ;;
*)
  echo "usage: setup.sh python | javascript" >&2
  exit 2
  ;;
esac

# One at a time, and one that was interrupted begins anew.
mkdir -p "$cache"
exec 9>"$target.lock"
if command -v flock >/dev/null; then flock 9; fi
if [[ ! -e "$target/complete" ]]; then
  rm -rf "$target"
  install >&2
  touch "$target/complete"
fi
printf '%s\n' "$target"
