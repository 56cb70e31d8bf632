"""Who takes part: hcomm and its peers, each with the settings at which it is known to do best, as command lines.

A setting that loses everywhere costs time and changes nothing, so the lists hold those that have won a cell. Gloo knows
TCP only, and takes no part in shared memory.

Ranks are bound one to a core when there are cores enough, as hcomm-bench does. Otherwise, and on hosts of a lab (which
share the machine's cores unknowingly), they are free, and the peers are told to yield.
"""

import os
import re
import shutil
from dataclasses import dataclass, field

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
BUILT = os.path.join(ROOT, "target", "peers")
OURS = os.environ.get("BENCH_PROGRAM", os.path.join(ROOT, "target", "release", "hcomm-bench"))
CORES = len(os.sched_getaffinity(0))


@dataclass(frozen=True)
class Scene:
    """Where ranks run: `shm:RANKS`, `tcp:RANKS` (loopback), `hosts:HOSTS[@RATE][,loss=PERCENT][,no-offload][,mtu=N]`."""

    name: str
    kind: str
    ranks: int
    lab: tuple = ()

    @staticmethod
    def parse(text):
        match = re.fullmatch(r"(shm|tcp|hosts):([0-9]+)(?:@([^,]+))?((?:,[a-z-]+(?:=[^,]+)?)*)", text)
        if not match or int(match[2]) < 2 or (match[1] != "hosts" and (match[3] or match[4])):
            raise ValueError(f"'{text}' is not a scene such as shm:2, tcp:2, hosts:3 or hosts:3@1gbit,loss=1%")
        kind, ranks, rate, more = match[1], int(match[2]), match[3], match[4].split(",")[1:]
        lab = ["--hosts", match[2], *(["--rate", rate] if rate else [])]
        for word in more:
            name, _, value = word.partition("=")
            lab += [f"--{name}", *([value] if value else [])]
        return Scene(text, kind, ranks, tuple(lab) if kind == "hosts" else ())

    @property
    def crowded(self):
        return self.ranks > CORES

    @property
    def shaped(self):
        return "--rate" in self.lab

    @property
    def interface(self):
        return "eth0" if self.kind == "hosts" else "lo"

    @property
    def addresses(self):
        return [f"10.77.0.{i + 1}" for i in range(self.ranks)]


@dataclass(frozen=True)
class Work:
    """What one run measures. `sizes` grow by one factor, so that hcomm-bench can be asked for them."""

    collectives: tuple
    sizes: tuple
    iterations: int
    warm_up: int

    def words(self):
        return [",".join(self.collectives), ",".join(map(str, self.sizes)), str(self.iterations), str(self.warm_up)]


@dataclass(frozen=True)
class Setting:
    """One peer with one set of settings. `commands(scene, work, directory)` gives a command for each process to start."""

    peer: str
    name: str
    commands: object = field(compare=False)

    @property
    def label(self):
        return f"{self.peer} {self.name}"


def on_host(address, command):
    return [os.path.join(ROOT, "scripts", "lab-agent"), address, *command]


# -- Open MPI ----------------------------------------------------------------------------------------------------------

# Debian's package excludes UCX by default, and UCX excludes itself where it finds no fast network.
_OPENMPI_UCX = ["--mca", "pml", "ucx", "--mca", "pml_ucx_tls", "any", "--mca", "pml_ucx_devices", "any"]


def _openmpi(name, *options):
    def commands(scene, work, _directory):
        words = ["mpirun.openmpi", "--allow-run-as-root", "-n", str(scene.ranks)]
        if scene.kind == "hosts":
            words += ["--host", ",".join(f"{address}:1" for address in scene.addresses), "--bind-to", "none",
                      "--mca", "plm_rsh_agent", os.path.join(HERE, "agent"), "--mca", "oob_tcp_if_include", "eth0"]
        elif scene.crowded:
            words += ["--oversubscribe", "--bind-to", "none"]
        else:
            words += ["--map-by", "core", "--bind-to", "core"]
        if scene.crowded:
            words += ["--mca", "mpi_yield_when_idle", "1"]
        words += [option.replace("INTERFACE", scene.interface) for option in options]
        words += [os.path.join(BUILT, "mpi.openmpi"), *work.words()]
        return [on_host(scene.addresses[0], words) if scene.kind == "hosts" else words]

    return Setting("openmpi", name, commands)


def _openmpi_tuned(algorithm):
    return ["--mca", "coll_tuned_use_dynamic_rules", "1", "--mca", "coll_tuned_allreduce_algorithm", str(algorithm)]


_OPENMPI_TCP = ["--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "INTERFACE"]
_UCX_TCP = {"UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "INTERFACE"}

OPENMPI_SHM = [
    _openmpi("default"),
    _openmpi("ucx", *_OPENMPI_UCX),
    _openmpi("coll-sm", "--mca", "coll_sm_priority", "100"),
    _openmpi("copy-in-copy-out", "--mca", "btl_vader_single_copy_mechanism", "none"),
    _openmpi("rabenseifner", *_openmpi_tuned(6)),
]
OPENMPI_TCP = [
    _openmpi("default", *_OPENMPI_TCP),
    _openmpi("ring", *_OPENMPI_TCP, *_openmpi_tuned(4)),
    _openmpi("rabenseifner", *_OPENMPI_TCP, *_openmpi_tuned(6)),
    _openmpi("recursive-doubling", *_OPENMPI_TCP, *_openmpi_tuned(3)),
    _openmpi("eager-256k", *_OPENMPI_TCP, "--mca", "btl_tcp_eager_limit", "262144",
             "--mca", "btl_tcp_rndv_eager_limit", "262144", "--mca", "btl_tcp_max_send_size", "262144"),
    _openmpi("ucx", *_OPENMPI_UCX, *(word for key, value in _UCX_TCP.items() for word in ("-x", f"{key}={value}"))),
]

# -- MPICH -------------------------------------------------------------------------------------------------------------


def _mpich(name, **variables):
    def commands(scene, work, _directory):
        words = ["mpirun.mpich", "-n", str(scene.ranks)]
        if scene.kind == "hosts":
            words += ["-hosts", ",".join(scene.addresses), "-localhost", scene.addresses[0], "-iface", "eth0",
                      "-launcher", "ssh", "-launcher-exec", os.path.join(HERE, "agent")]
        elif not scene.crowded:
            words += ["-bind-to", "core"]
        settings = dict(variables)
        if scene.crowded:
            settings["MPIR_CVAR_POLLS_BEFORE_YIELD"] = "1"
        for key, value in settings.items():
            words += ["-genv", key, value.replace("INTERFACE", scene.interface)]
        words += [os.path.join(BUILT, "mpi.mpich"), *work.words()]
        return [on_host(scene.addresses[0], words) if scene.kind == "hosts" else words]

    return Setting("mpich", name, commands)


_MPICH_TCP = {"MPIR_CVAR_NOLOCAL": "1", **_UCX_TCP}
_MPICH_RELEASE_GATHER = {f"MPIR_CVAR_{operation}_POSIX_INTRA_ALGORITHM": "release_gather"
                         for operation in ("BARRIER", "BCAST", "REDUCE", "ALLREDUCE")}

MPICH_SHM = [
    _mpich("default"),
    # From the first call on, rather than from the fifth.
    _mpich("release-gather", MPIR_CVAR_POSIX_NUM_COLLS_THRESHOLD="1", **_MPICH_RELEASE_GATHER),
]
MPICH_TCP = [
    _mpich("default", **_MPICH_TCP),
    _mpich("rabenseifner", MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM="reduce_scatter_allgather", **_MPICH_TCP),
    _mpich("recursive-doubling", MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM="recursive_doubling", **_MPICH_TCP),
]

# -- Gloo --------------------------------------------------------------------------------------------------------------


def _gloo(algorithm):
    def commands(scene, work, directory):
        found = []
        for rank in range(scene.ranks):
            words = [os.path.join(BUILT, "gloo"), str(rank), str(scene.ranks), directory, scene.interface, algorithm,
                     *work.words()]
            found.append(on_host(scene.addresses[rank], words) if scene.kind == "hosts" else words)
        return found

    return Setting("gloo", algorithm.replace("_", "-"), commands)


GLOO_TCP = [_gloo(algorithm) for algorithm in (
    "ring", "bcube", "old_ring", "ring_chunked", "halving_doubling", "old_bcube", "halving_doubling+poll")]

# -- hcomm -------------------------------------------------------------------------------------------------------------


def _hcomm(name, *options):
    def commands(scene, work, _directory):
        words = [OURS, ",".join(work.collectives),
                 "-b", str(work.sizes[0]), "-e", str(work.sizes[-1]),
                 "-f", str(work.sizes[1] // work.sizes[0] if len(work.sizes) > 1 else 2),
                 "-n", str(work.iterations), "-w", str(work.warm_up), *options]
        if scene.kind != "hosts":
            return [[*words, "-g", str(scene.ranks), "--transport", scene.kind, "--json", "-"]]
        words += ["--join", f"tcp://{scene.addresses[0]}:29500", "--nodes", str(scene.ranks), "-g", "1"]
        return [on_host(address, [*words, *(["--json", "-"] if address == scene.addresses[0] else [])])
                for address in scene.addresses]

    return Setting("hcomm", name, commands)


HCOMM_SHM = [_hcomm("registered", "--buffers", "registered"), _hcomm("plain", "--buffers", "plain")]
HCOMM_TCP = [_hcomm("default")]


def participants(scene, peers_only):
    """All that can run here, ours first, and the names of those that are not installed."""
    ours = [] if peers_only else HCOMM_SHM if scene.kind == "shm" else HCOMM_TCP
    theirs = OPENMPI_SHM + MPICH_SHM if scene.kind == "shm" else OPENMPI_TCP + MPICH_TCP + GLOO_TCP
    missing = [peer for peer, program in (("openmpi", "mpi.openmpi"), ("mpich", "mpi.mpich"), ("gloo", "gloo"))
               if not os.path.exists(os.path.join(BUILT, program))]
    # Gloo's older bcube gives wrong sums on other numbers of ranks.
    wrong = {"old-bcube"} if scene.ranks & (scene.ranks - 1) else set()
    return ours + [setting for setting in theirs if setting.peer not in missing and setting.name not in wrong], missing


def build(run):
    """Compiles what can be compiled here and is not up to date. `run` is given each command."""
    os.makedirs(BUILT, exist_ok=True)
    compilers = {
        "mpi.openmpi": ("mpicc.openmpi", "mpi.c", ["-O3", "-march=native", "-std=gnu11"]),
        "mpi.mpich": ("mpicc.mpich", "mpi.c", ["-O3", "-march=native", "-std=gnu11"]),
        "gloo": ("g++", "gloo.cc", ["-O3", "-march=native", "-std=c++17"]),
    }
    for program, (compiler, source, options) in compilers.items():
        target, sources = os.path.join(BUILT, program), [os.path.join(HERE, name) for name in (source, "bench.h")]
        if os.path.exists(target) and all(os.path.getmtime(target) > os.path.getmtime(name) for name in sources):
            continue
        if shutil.which(compiler) and (program != "gloo" or os.path.isdir("/usr/include/gloo")):
            run([compiler, *options, "-o", target, sources[0], *(["-lgloo", "-lpthread"] if program == "gloo" else [])])
