#!/usr/bin/env bash
# Hosts with Debian's sshd on loopback, and topoctl that collects from them: sshd.sh TOOLS DIR TOPOCTL. It runs in a
# network and a mount namespace of its own (unshare -n -m), as root. Keys, ssh's configuration and root's home are in
# DIR; /etc/passwd and the like are replaced in the mount namespace alone.
set -euo pipefail
tools=$1 dir=$2 topoctl=$3
export LD_LIBRARY_PATH=$(echo "$tools"/usr/lib/*-linux-gnu)
mount --make-rprivate /
ip link set lo up
mkdir -p "$dir/home/.ssh" "$dir/etc" "$dir/bin"
cp "$topoctl" "$dir/bin/topoctl"
# sshd gives its rights up to a user of its own; root's home is where ssh looks for its configuration.
{ echo "root:x:0:0:root:$dir/home:/bin/sh"; grep -v '^root:' /etc/passwd; echo 'sshd:x:64998:65534::/run/sshd:/usr/sbin/nologin'; } >"$dir/etc/passwd"
echo 'root:*:20000:0:99999:7:::' >"$dir/etc/shadow" # no password, and not locked
chmod 600 "$dir/etc/shadow"
for file in passwd shadow; do mount --bind "$dir/etc/$file" "/etc/$file"; done
mount -t tmpfs none /run
mkdir -p /run/sshd
chmod 755 /run/sshd
keygen() { "$tools/usr/bin/ssh-keygen" -q -t ed25519 -N '' -C test -f "$1"; }
keygen "$dir/host_key"
keygen "$dir/other_key"
keygen "$dir/home/.ssh/id_ed25519"
pids=()
trap 'kill -CONT "${pids[@]}" 2>/dev/null; kill "${pids[@]}" 2>/dev/null; wait' EXIT
# serve PORT OPTION...: an sshd that knows the key, unless an option says otherwise: the first one counts.
serve() {
	local port=$1
	printf '%s\n' "${@:2}" "Port $port" "ListenAddress 127.0.0.1" "HostKey $dir/host_key" "PidFile none" "UsePAM no" "StrictModes no" "PermitRootLogin yes" \
		"AuthorizedKeysFile $dir/home/.ssh/id_ed25519.pub" "SetEnv PATH=$dir/bin:/usr/bin:/bin" >"$dir/$port.conf"
	"$tools/usr/sbin/sshd" -D -e -f "$dir/$port.conf" >"$dir/$port.log" 2>&1 &
	pids+=($!)
	for _ in $(seq 240); do # a minute and more, where the machine is busy
		if (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then return; fi
		kill -0 "${pids[-1]}" || break
		sleep 0.25
	done
	cat "$dir/$port.log" >&2
	return 1
}
serve 2201
serve 2202 "SetEnv PATH=/usr/bin:/bin"             # topoctl is not installed
serve 2203 "AuthorizedKeysFile none"               # asks for a password
serve 2204                                         # its key is not known
serve 2205 "HostKey $dir/other_key"                # has another key than the one that is known
serve 2206                                         # does not answer
kill -STOP "${pids[-1]}"
alias() { printf 'Host %s\n  HostName 127.0.0.1\n  Port %s\n' "$@"; }
{ alias good 2201; alias bare 2202; alias denied 2203; alias unknown 2204; alias changed 2205; alias hung 2206; alias down 2207; } >"$dir/home/.ssh/config"
for port in 2201 2202 2203 2205 2206; do echo "[127.0.0.1]:$port $(cut -d' ' -f1,2 "$dir/host_key.pub")"; done >"$dir/home/.ssh/known_hosts"
printf '%s\n' good bare denied unknown changed hung down nosuch.invalid >"$dir/hosts"
cd "$dir"
export PATH=$dir/bin:$tools/usr/bin:$PATH
unset SSH_AUTH_SOCK SSH_ASKPASS DISPLAY
code=0
topoctl fleet collect --hosts hosts --launch ssh --out-dir fleet --timeout 2m </dev/null >"$dir/answer" 2>"$dir/said" || code=$?
echo "code $code"
# Commands with words of their own, and what ssh is told in its configuration: here to give up soon.
code=0
printf 'Host *\n  ConnectTimeout 1\n' >>"$dir/home/.ssh/config"
topoctl fleet collect --host "n1=bare" --launch ssh --launch-command "env PATH=$dir/bin topoctl" --out-dir words </dev/null >>"$dir/answer" 2>>"$dir/said" || code=$?
echo "code $code"
