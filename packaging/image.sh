#!/bin/sh
# Makes a container image of target/release/turnbuckle, without a daemon: see `make image`. Needs buildah.
#     packaging/image.sh ARCHIVE FILE      ARCHIVE is oci-archive or docker-archive
set -eu
archive=$1
file=$2
here=target/image
root=$here/root

rm -rf "$here" "$file"
mkdir -p "$root/usr/bin" "$root/etc/turnbuckle" "$root/usr/share/doc/turnbuckle" "$root/var/lib" "$root/tmp" "$here/data"
chmod 1777 "$root/tmp"

# Without debug information: 21 MB instead of 133 MB.
strip -o "$root/usr/bin/turnbuckle" target/release/turnbuckle
cp LICENSE-APACHE LICENSE-MIT README.md packaging/cluster.toml target/release/package/THIRD-PARTY-LICENCES.gz "$root/usr/share/doc/turnbuckle/"

# The shared libraries, at the paths where the loader looks for them, with the licences of their packages.
for library in $(ldd target/release/turnbuckle | grep -o '/[^ ]*'); do
    mkdir -p "$root$(dirname "$library")"
    cp -L "$library" "$root$library"
    package=$(dpkg -S "$(realpath "$library")" "$library" 2>/dev/null | head -n 1 | cut -d : -f 1)
    if [ -z "$package" ]; then
        echo "no package has $library: its licence is not in the image" >&2
        continue
    fi
    mkdir -p "$root/usr/share/doc/$package"
    cp -L "/usr/share/doc/$package/copyright" "$root/usr/share/doc/$package/"
done

# Names of hosts come from /etc/hosts and from DNS; both are in the C library itself.
echo 'hosts: files dns' >"$root/etc/nsswitch.conf"
echo 'turnbuckle:x:65532:65532:Turnbuckle:/var/lib/turnbuckle:/nonexistent' >"$root/etc/passwd"
echo 'turnbuckle:x:65532:' >"$root/etc/group"

# turnbuckle 0.1.0 (commit 0123abc 2026-11-25)
version=$(target/release/turnbuckle --version | cut -d ' ' -f 2)
commit=$(target/release/turnbuckle --version | sed -n 's/.*(commit \([^ ]*\).*/\1/p')
name=turnbuckle:$version

buildah() {
    command buildah --root "$PWD/$here/storage" --runroot "$PWD/$here/run" --storage-driver vfs "$@"
}
buildah build --quiet --layers=false --timestamp "$(git log -1 --format=%ct)" --build-arg "VERSION=$version" --build-arg "COMMIT=$commit" \
    --file packaging/Containerfile --tag "$name" "$here"
buildah push --quiet "$name" "$archive:$file:$name"
rm -rf "$here/storage" "$here/run"
echo "$file: $name, commit $commit"
