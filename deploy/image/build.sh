#!/bin/sh
# Makes a Debian base into an image of Podyard: all steps of the Dockerfile, so that they run without a container engine, too.
#
#   build.sh SOURCE    SOURCE: a wheel, or a folder with Podyard's source
#
# Variables: EXTRAS (default: demo,grpc,pdf,postgres), WHEELS (a folder: nothing is downloaded by pip), PODYARD_UID.
set -eu
SOURCE=$1
EXTRAS=${EXTRAS:-demo,grpc,pdf,postgres}
PODYARD_UID=${PODYARD_UID:-10001}
export DEBIAN_FRONTEND=noninteractive

# redis-server: the broker of a machine that has no other; iproute2 and util-linux: boxes of hosts, where they may be made.
apt-get update
apt-get install --yes --no-install-recommends ca-certificates iproute2 python3 python3-venv redis-server util-linux
apt-get clean
rm -rf /var/lib/apt/lists/*

python3 -m venv /opt/podyard
if [ -n "${WHEELS:-}" ]; then
    /opt/podyard/bin/python -m pip install --no-cache-dir --no-index --find-links "$WHEELS" "podyard[$EXTRAS] @ file://$SOURCE"
else
    /opt/podyard/bin/python -m pip install --no-cache-dir "podyard[$EXTRAS] @ file://$SOURCE"
fi
ln -sf /opt/podyard/bin/podyard /usr/local/bin/podyard

# Nothing of the platform needs root. Agents that put hosts into boxes do: run those as root.
id podyard >/dev/null 2>&1 || useradd --uid "$PODYARD_UID" --create-home --home-dir /var/lib/podyard --shell /usr/sbin/nologin podyard
install --directory --owner podyard --group podyard --mode 0700 /data

/usr/local/bin/podyard --version
