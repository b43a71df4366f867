# make verify   all checks that must pass, as in CI; it changes no source file
# make fix      formats the code, and applies the fixes of clippy
# make demo     a three-site cluster with WAN delays
# make bench    micro-benchmarks
# make figures  writes the tables of docs/experiments.md again
# make planted  finds the first drawn world that shows each planted bug, and writes the list into docs/simulation.md
# make campaign runs real processes under load and faults: docs/campaign.md
# make book     all pages as HTML, with search: target/book/index.html
# make deb      a Debian package: target/debian/
# make image    a container image: target/turnbuckle-image.tar
.PHONY: campaign verify fix demo bench figures planted bench-redis bench-before bench-causal bench-quorum bench-failover bench-regional bench-etcd bench-deletes bench-expiry bench-strangers bench-memory bench-beyond bench-checkpoint
.PHONY: test-redis-py test-clients test-valkey-suite deny fuzz book package-files deb image
CARGO ?= cargo
# BUILD=true packages the program that is there.
BUILD ?= $(CARGO) build --release --locked
PACKAGE := target/release/package

verify:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --quiet -- -D warnings
	$(CARGO) check --workspace --quiet
	$(CARGO) build --workspace --bins --tests --examples --quiet
	$(CARGO) test --workspace
	SEEDS=1..1000 $(CARGO) test --release --quiet -p turnbuckle-sim --test all -- hashes swarm
	for protocol in eventual causalspartanx gentlerain cops abd quorum dacian nukv; do \
	    target/debug/turnbuckle sim --protocol $$protocol --seeds 1..200 || exit 1; done
	target/debug/turnbuckle-campaign --minutes 2 --memory-mb 4096 --without lost-directories,old-directories,damage
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --quiet

fix:
	$(CARGO) fmt --all
	$(CARGO) clippy --workspace --all-targets --fix --allow-dirty

# Options: MINUTES=5 SEED=1 PROTOCOL=cops DURABILITY=fsync MORE="--only kills,cuts --json"
campaign:
	$(CARGO) build --release --quiet -p turnbuckle -p turnbuckle-campaign
	target/release/turnbuckle-campaign --minutes $(or $(MINUTES),5) --seed $(or $(SEED),1) \
	    $(if $(PROTOCOL),--protocol '$(PROTOCOL)') $(if $(DURABILITY),--durability '$(DURABILITY)') $(MORE)

demo:
	$(CARGO) run --release -- demo

bench:
	$(CARGO) bench -p turnbuckle-store
	$(CARGO) bench -p turnbuckle-check --bench check
	$(CARGO) bench -p turnbuckle-sim --bench events

# That a claim does not hold (exit code 1) is a result like any other: the page says which.
figures:
	$(CARGO) run --release --quiet -- experiment run --into docs/experiments.md \
		$$($(CARGO) run --release --quiet -- experiment list | cut -d ' ' -f 1) >/dev/null; test $$? -le 1

planted:
	$(CARGO) run --release --quiet -- sim --hunt --into docs/simulation.md --of "$$(git log -1 --format='commit %h of %cs')"

# The protocols whose keyspaces are measured beside Redis.
PROTOCOLS := eventual causalspartanx gentlerain cops quorum abd dacian nukv

# Needs Python, and Debian packages, which it installs: redis-server and redis-tools.
bench-redis:
	command -v redis-benchmark >/dev/null || (apt-get update && apt-get install -y redis-server redis-tools)
	$(CARGO) build --release
	python3 benches/redis.py --into docs/benchmarks.md
	python3 benches/redis.py --rounds 3 --requests 20000 --tests SET GET --protocols $(PROTOCOLS) --into docs/benchmarks.md
	python3 benches/redis.py --requests 40000 --durability fsync --redis-fsync always --into docs/benchmarks.md
	python3 benches/tls.py --into docs/tls.md

# Needs Python, redis-server and redis-tools. Builds the commit BEFORE, in target/before, and measures GET and SET beside it; takes six minutes, and as long as two release builds. RUN=2 and RUN=3 write the tables of further runs.
BEFORE ?= 12b56444
bench-before:
	$(CARGO) build --release
	test -d target/before || git clone -q --no-checkout . target/before
	git -C target/before fetch -q origin
	git -C target/before checkout -q $(BEFORE)
	cd target/before && $(CARGO) build --release
	python3 benches/redis.py --rounds 9 --tests SET GET --before target/before/target/release/turnbuckle $(if $(RUN),--run $(RUN)) --into docs/benchmarks.md

# Needs Python. Measures how demanding clients affect another client's latency and the node's memory; takes two minutes.
bench-strangers:
	$(CARGO) build --release
	python3 benches/strangers.py --keyspace eventual
	python3 benches/strangers.py --keyspace causal

# Needs Python. Makes a million deletes, and measures when their tombstones are removed, and the memory and disk used; takes three minutes.
bench-deletes:
	$(CARGO) build --release
	python3 benches/deletes.py

# Needs Python. Writes a million keys a minute that expire, and measures the memory, the disk, and how long other operations take meanwhile; takes twelve minutes.
bench-expiry:
	$(CARGO) build --release
	python3 benches/expiry.py

# Needs Python. Measures the cost of causal consistency; takes eight minutes.
bench-causal:
	$(CARGO) build --release
	python3 benches/causal.py --only throughput --windows 9 --into docs/benchmarks.md
	python3 benches/causal.py --only visibility --rounds 3 --seconds 3 --into docs/benchmarks.md
	python3 benches/causal.py --only rotx --rounds 2 --into docs/benchmarks.md

# Needs Python, redis-server and redis-tools. Measures the memory of a million keys, and the time to start, for each kind of keyspace; takes ten minutes.
bench-memory:
	$(CARGO) build --release
	python3 benches/memory.py --into docs/benchmarks.md

# Needs Python, redis-server and redis-tools. Measures two million small keys that do not fit into memory; takes three minutes. More: benches/beyond.py --keys 100000000 --limit 512
bench-beyond:
	$(CARGO) build --release
	python3 benches/beyond.py --into docs/benchmarks.md

# Needs Python. Measures how long operations take while checkpoints run; takes three minutes.
bench-checkpoint:
	$(CARGO) build --release
	python3 benches/checkpoint.py --into docs/benchmarks.md

# Needs Python; installs redis-py into a virtual environment under target/.
test-redis-py:
	python3 -m venv target/redis-py
	target/redis-py/bin/pip install --quiet 'redis>=5'
	$(CARGO) build --release
	target/redis-py/bin/python clients/python/test_redis_py.py
	target/redis-py/bin/python clients/python/photo_album.py
	target/redis-py/bin/python clients/python/test_the_pages.py

# Needs Python, Node, Go, Java and Maven; installs the clients under target/. UPDATE=yes writes docs/clients.md
test-clients:
	$(CARGO) build --release
	python3 clients/compatibility/run.py $(if $(UPDATE),--update)

# Needs Python, tclsh 8.6 and a checkout of Valkey: docs/clients.md. Takes three minutes. Options: UPDATE=yes KEYSPACE=eventual FILE=unit/type/string
test-valkey-suite:
	@test -n "$(SUITE)" || (echo "SUITE=/path/to/valkey is missing: a checkout of Valkey, see docs/clients.md"; exit 2)
	$(CARGO) build --release
	python3 clients/valkey/run.py --suite "$(SUITE)" $(if $(UPDATE),--update) $(if $(KEYSPACE),--keyspace $(KEYSPACE)) $(if $(FILE),--file $(FILE))

deny:
	command -v cargo-deny >/dev/null || $(CARGO) install --locked cargo-deny
	$(CARGO) deny check

# Options: TARGET=resp_decoder TIME=600 (seconds)
fuzz:
	command -v cargo-fuzz >/dev/null || $(CARGO) install --locked cargo-fuzz
	cd fuzz && $(CARGO) +nightly fuzz run $(TARGET) -- -max_total_time=$(or $(TIME),60)

# Needs Python. Fails if a link of the book leads nowhere.
book:
	command -v mdbook >/dev/null || $(CARGO) install --locked mdbook --no-default-features --features search
	python3 packaging/book.py stage
	mdbook build target/book-src
	python3 packaging/book.py finish

# What packages have beside the program: manual pages, completions, licences, changes. Needs Python.
package-files:
	$(BUILD)
	rm -rf $(PACKAGE)
	mkdir -p $(PACKAGE)/man $(PACKAGE)/completions
	target/release/turnbuckle man --into $(PACKAGE)/man
	gzip -9n $(PACKAGE)/man/*
	for shell in bash zsh fish; do \
	    target/release/turnbuckle completions $$shell >$(PACKAGE)/completions/turnbuckle.$$shell || exit 1; done
	python3 packaging/licences.py | gzip -9n >$(PACKAGE)/THIRD-PARTY-LICENCES.gz
	gzip -9n <CHANGELOG.md >$(PACKAGE)/changelog.gz

# Option: MAINTAINER='A Name <an@address>', the person who distributes the package
MAINTAINER ?= The Turnbuckle authors
deb: package-files
	command -v cargo-deb >/dev/null || $(CARGO) install --locked cargo-deb
	printf 'turnbuckle (%s-1) unstable; urgency=medium\n\n  * See changelog.gz.\n\n -- %s  %s\n' \
	    "$$(target/release/turnbuckle --version | cut -d ' ' -f 2)" '$(MAINTAINER)' "$$(git log -1 --format=%cD)" \
	    | gzip -9n >$(PACKAGE)/changelog.Debian.gz
	$(CARGO) deb --package turnbuckle --no-build --strip --maintainer '$(MAINTAINER)'

# Option: ARCHIVE=docker-archive, for a docker that loads no OCI archives. Needs the Debian package buildah, which it installs; no daemon.
image: package-files
	command -v buildah >/dev/null || (apt-get update && apt-get install -y buildah)
	sh packaging/image.sh $(or $(ARCHIVE),oci-archive) target/turnbuckle-image.tar

# Needs Python. Kills and restarts nodes under load, and judges the trace; takes sixteen minutes. One part: python3 benches/failover.py --only kills|rolling|members
bench-failover:
	$(CARGO) build --release
	python3 benches/failover.py

# Needs Python. Kills a node of each site under load, and judges the trace; measures session guarantees beside eventual, and a regional keyspace beside a consensus one; takes eleven minutes.
bench-regional:
	$(CARGO) build --release
	python3 benches/regional.py

# Needs Python and Go. Measures a consensus keyspace beside etcd, which it builds from Go modules; takes eight minutes.
bench-etcd:
	$(CARGO) build --release
	cd benches/etcd && go build -o ../../target/etcd/ ./...
	python3 benches/etcd.py

# Needs Python. Measures what each level of a quorum keyspace costs; takes six minutes. One part: python3 benches/quorum.py --only levels|exchange|wan
bench-quorum:
	$(CARGO) build --release
	python3 benches/quorum.py
