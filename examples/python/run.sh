#!/usr/bin/env bash
# Runs the examples against a running collector. The first time it makes their virtual
# environment, in .venv; "run.sh --help" says what there is to run.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
bash install.sh .venv
exec .venv/bin/python run.py "$@"
