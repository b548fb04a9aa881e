#!/usr/bin/env bash
# Two hosts, a leaf and a spine as network namespaces with an lldpd each: lldp.sh TOOLS OUT. It runs in a network and a
# mount namespace of its own (unshare -n -m), as root. OUT gets a file for each, with what lldpcli says of it.
set -euo pipefail
tools=$1 out=$2
lib=$(echo "$tools"/usr/lib/*-linux-gnu)
export LD_LIBRARY_PATH=$lib
mount --make-rprivate /
# lldpd gives its rights up, to a user of its own.
for file in passwd group; do cp "/etc/$file" "$out/$file"; done
echo '_lldpd:x:64999:64999::/run/lldpd:/usr/sbin/nologin' >>"$out/passwd"
echo '_lldpd:x:64999:' >>"$out/group"
for file in passwd group; do mount --bind "$out/$file" "/etc/$file"; done
mount -t tmpfs none /run
mkdir -p /run/lldpd
for name in n1 n2 leaf1 spine1; do
	ip netns add "$name"
	ip -n "$name" link set lo up
done
cable() { ip link add "$2" netns "$1" type veth peer name "$4" netns "$3"; }
cable n1 eth0 leaf1 swp1
cable n1 eth1 leaf1 swp2
cable n2 eth0 leaf1 swp3
cable leaf1 swp49 spine1 swp1
for name in leaf1 spine1; do ip -n "$name" link add bridge type bridge; done # what makes a switch of a host
ports() { ip -n "$1" -o link show type veth | sed -E 's/^[0-9]+: ([^@:]+).*/\1/'; }
for name in n1 n2 leaf1 spine1; do
	for port in $(ports "$name"); do
		[[ $name == n* ]] || ip -n "$name" link set "$port" master bridge
		ip -n "$name" link set "$port" up
	done
	[[ $name == n* ]] || ip -n "$name" link set bridge up
	echo "configure system hostname $name
configure lldp tx-interval 1
configure lldp portidsubtype ifname" >"$out/$name.conf"
	ip netns exec "$name" "$tools/usr/sbin/lldpd" -d -u "/run/$name.sock" -O "$out/$name.conf" -L "$tools/usr/sbin/lldpcli" -S "test of $name" >"$out/$name.log" 2>&1 &
done
trap 'kill $(jobs -p) 2>/dev/null; wait' EXIT
ask() { "$tools/usr/sbin/lldpcli" -u "/run/$1.sock" -f json show "${@:2}" 2>>"$out/$1.log"; }
hears() { [ "$(ask "$1" neighbors details | grep -c '"rid"')" -ge "$2" ]; }
for _ in $(seq 240); do # a minute and more: lldpd begins slowly where the machine is busy
	if hears n1 2 && hears n2 1 && hears leaf1 4 && hears spine1 1; then
		for name in n1 n2 leaf1 spine1; do
			{ ask "$name" neighbors details; ask "$name" chassis; } >"$out/$name.json"
		done
		exit 0
	fi
	sleep 0.5
done
tail -n 20 "$out"/*.log >&2
exit 1
