#!/usr/bin/env bash
# Installs Debian's chromium for the browser tests when no browser is there yet.
set -euo pipefail
if command -v chromium >/dev/null; then exit 0; fi
apt-get update
apt-get install -y --no-install-recommends chromium fonts-dejavu-core
