"""The environments from PyPI in which the peers run: build/peers/NAME, made on first use and kept.

PyTorch's is build/python-env, for which the Python module is built.
"""
import collections
import sys
import venv

import turns

# `shared`: the packages of build/python-env are there, too. Its `packages` are installed without what they depend on, since
# torch is there without the libraries that only GPUs need.
Environment = collections.namedtuple("Environment", "name packages shared", defaults=(False,))
TENSORFLOW = Environment("tensorflow", ("tensorflow-cpu==2.21.0",))
PYTORCH = Environment("pytorch", (), True)
# A torchrec and an FBGEMM for another torch would not load.
TORCHREC = Environment("torchrec", (
    "torchrec==1.0.0", "fbgemm-gpu-cpu==1.0.0", "torchmetrics==1.0.3", "lightning-utilities==0.11.9", "packaging==24.2",
    "iopath==0.1.10", "portalocker==3.0.0", "pyre-extensions==0.0.32", "typing-inspect==0.9.0", "tqdm==4.67.1"), True)
PADDLE = Environment("paddle", ("paddlepaddle==2.6.2", "setuptools", "decorator==5.1.1", "protobuf==4.25.3",
                                "numpy==1.26.4"))
PYARROW = Environment("pyarrow", ("pyarrow==26.0.1", "numpy==2.4.6"))
SHARED = turns.ROOT / "build/python-env"


def python(work, environment):
    """The python of the environment, which is made when its packages are not there yet."""
    if environment.shared and not (SHARED / "requirements-torch.txt").exists():
        sys.exit("%s has no PyTorch: run ./dev python" % SHARED)
    if not environment.packages:
        return SHARED / "bin/python"
    folder = work / environment.name
    packages = folder / "packages"
    wanted = "\n".join(environment.packages)
    if not packages.exists() or packages.read_text() != wanted:
        print("installing %s" % ", ".join(environment.packages), flush=True)
        if environment.shared:
            turns.run([SHARED / "bin/python", "-m", "venv", "--clear", folder])
        else:
            venv.create(folder, with_pip=True, clear=True)
        turns.run([folder / "bin/pip", "install", "-q", *(["--no-deps"] if environment.shared else []), *environment.packages])
        if environment.shared:
            print_path = "import sysconfig; print(sysconfig.get_path('purelib'))"
            own, shared = (turns.run([at / "bin/python", "-c", print_path]).strip() for at in (folder, SHARED))
            with open("%s/shared.pth" % own, "w") as out:
                out.write(shared + "\n")
        packages.write_text(wanted)
    return folder / "bin/python"
