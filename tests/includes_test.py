"""Includes go downwards: between the top folders, and between the rooms of a folder. No folders include each other in a circle.

A folder's rooms stand here from the top floor down. A file may include files of its own room and of the rooms below it; files
that lie in the folder itself, such as main.cc, stand above all of its rooms. CMakeLists.txt and READMEs stay in the folder.
"""
import collections
import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[1]

BELOW = {  # top folder: the top folders that it may include
    "proto": "",
    "common": "proto",
    "model": "common proto",
    "client": "common proto",
    "server": "common proto",
    "scheduler": "model common proto",
    "worker": "client model common proto",
    "cli": "model common proto",
    "python": "worker model common proto",
}
ROOMS = {
    "scheduler": "service core recovery files page registry job members",
    "server": "service tables copies checkpoints requests shards",
    "worker": "service train step data context dense batches",
    "cli": "commands plan hosts cluster jobs report screen",
}
MOST_ROOMS = 8


def room_of(path):
    """("scheduler", "core") for scheduler/core/x.h, and ("scheduler", "") for scheduler/main.cc."""
    parts = path.split("/")
    return parts[0], parts[1] if len(parts) > 2 else ""


def upward(includes):
    """The includes, as pairs (file, included file), that point upwards or to a folder beside."""
    found = []
    for file, included in includes:
        (top, room), (other, below) = room_of(file), room_of(included)
        if top != other:
            if other not in BELOW[top].split():
                found.append((file, included))
        elif top in ROOMS and room:
            floors = {name: floor for floor, name in enumerate(ROOMS[top].split())}
            # A room without a floor is found by the test of the rooms.
            if not below or floors.get(below, 0) < floors.get(room, 0):
                found.append((file, included))
    return found


def circles(includes):
    """The sets of folders that include each other, directly or through others."""
    below = collections.defaultdict(set)
    for file, included in includes:
        a, b = file.rpartition("/")[0], included.rpartition("/")[0]
        if a != b:
            below[a].add(b)

    def reached(folder):
        seen, open_ = set(), [folder]
        while open_:
            for other in below[open_.pop()] - seen:
                seen.add(other)
                open_.append(other)
        return seen

    from_ = {folder: reached(folder) for folder in list(below)}
    return {frozenset(other for other in from_[folder] if folder in from_.get(other, ())) for folder in from_
            if folder in from_[folder]}


def includes_of_tree():
    for top in BELOW:
        for file in sorted(ROOT.glob(top + "/**/*")):
            if file.suffix in (".h", ".cc", ".cu", ".cuh"):
                name = str(file.relative_to(ROOT))
                for included in re.findall(r'^\s*#\s*include "([\w/]+\.[\w.]+)"', file.read_text(), re.M):
                    if included.split("/")[0] in BELOW:
                        yield name, included


class IncludesTest(unittest.TestCase):
    maxDiff = None

    def test_no_include_of_the_tree_points_upwards(self):
        self.assertEqual(upward(includes_of_tree()), [])

    def test_no_folders_include_each_other(self):
        self.assertEqual([sorted(circle) for circle in circles(includes_of_tree())], [])

    def test_the_rooms_are_those_of_the_tree(self):
        for top, rooms in ROOMS.items():
            self.assertLessEqual(len(rooms.split()), MOST_ROOMS, top)
            folders = {file.parent.name for file in ROOT.glob(top + "/*/*.h")}
            self.assertEqual(folders, set(rooms.split()), top)
            self.assertEqual([str(file) for file in ROOT.glob(top + "/*.h")], [], "headers belong into rooms")

    def test_an_upward_include_is_found(self):
        up = [("scheduler/job/job.h", "scheduler/core/scheduler_core.h"), ("common/base/env.h", "model/model.h"),
              ("worker/train/trainer.h", "server/shards/shard.h"), ("cli/screen/format.h", "cli/main.h")]
        down = [("scheduler/core/scheduler_core.h", "scheduler/job/job.h"), ("model/model.h", "common/base/env.h"),
                ("scheduler/main.cc", "scheduler/service/scheduler_server.h"), ("cli/jobs/job_files.h", "cli/jobs/endpoints.h")]
        self.assertEqual(upward(up + down), up)

    def test_a_circle_is_found(self):
        circle = [("a/b/x.h", "a/c/y.h"), ("a/c/y.h", "a/d/z.h"), ("a/d/w.h", "a/b/v.h")]
        line = [("a/e/x.h", "a/b/x.h"), ("a/b/x.h", "a/f/x.h")]
        self.assertEqual(circles(circle + line), {frozenset({"a/b", "a/c", "a/d"})})
        self.assertEqual(circles(line), set())


if __name__ == "__main__":
    unittest.main()
