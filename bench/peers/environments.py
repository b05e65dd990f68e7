"""The environments from PyPI in which the peers run: build/peers/NAME, made on first use and kept."""
import collections
import venv

import turns

Environment = collections.namedtuple("Environment", "name packages")
TENSORFLOW = Environment("tensorflow", ("tensorflow-cpu==2.21.0",))
PYTORCH = Environment("pytorch", ("torch==2.5.1", "numpy"))
PADDLE = Environment("paddle", ("paddlepaddle==2.6.2", "setuptools", "decorator==5.1.1", "protobuf==4.25.3",
                                "numpy==1.26.4"))


def python(work, environment):
    """The python of the environment, which is made when its packages are not there yet."""
    folder = work / environment.name
    packages = folder / "packages"
    wanted = "\n".join(environment.packages)
    if not packages.exists() or packages.read_text() != wanted:
        print("installing %s" % ", ".join(environment.packages), flush=True)
        venv.create(folder, with_pip=True, clear=True)
        turns.run([folder / "bin/pip", "install", "-q", *environment.packages])
        packages.write_text(wanted)
    return folder / "bin/python"
