#!/usr/bin/env bash
# Runs the examples against a running collector. The first time it installs their packages,
# in node_modules; "run.sh --help" says what there is to run.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
bash install.sh .
exec node --no-warnings run.mjs "$@"
