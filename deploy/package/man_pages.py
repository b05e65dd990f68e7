#!/usr/bin/env python3
"""man_pages.py BIN_FOLDER MAN_FOLDER VERSION DATE: writes man pages from what the programs say with --help."""
import gzip
import pathlib
import re
import subprocess
import sys

DAEMONS = ("sluice-scheduler", "sluice-pserver", "sluice-worker")


def escaped(text):
    """`text` for troff: no character of it is an instruction, and "-" is the one that is typed."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace("`", "\\(ga")
    return re.sub(r"(?m)^\.", r"\\&.", text)


def flags(lines):
    """[(flag, help)] of the lines below "Flags:"."""
    found = []
    for line in lines:
        begins = re.match(r"  (--\S+)(?:\s+(.*))?$", line)
        if begins:
            found.append([begins[1], begins[2] or ""])
        elif found:
            found[-1][1] += " " + line.strip()
    return found


def page(name, section, summary, text, version, date):
    """A man page of the help `text`: its first lines say how it is called and what it does."""
    out = ['.TH %s %d "%s" "sluice %s"' % (name.upper(), section, date, version),
           ".SH NAME", "%s \\- %s" % (escaped(name), escaped(summary)), ".SH DESCRIPTION"]
    for number, block in enumerate(text.strip("\n").split("\n\n")):
        head, _, rest = block.partition("\n")
        if head == "Flags:":
            out.append(".SH OPTIONS")
            for flag, words in flags(rest.split("\n")):
                out += [".TP", ".B " + escaped(flag), escaped(words.strip())]
            continue
        titled = head.endswith(":") and number > 0
        if titled:
            out.append(".SH " + escaped(head[:-1].upper()))
        out += [".nf", escaped(rest if titled else block), ".fi"]
    return "\n".join(out) + "\n"


def said(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def first_sentence(text):
    sentence = re.split(r"(?<=\w)[.:](?: |$)", " ".join(text.split()))[0]
    return sentence[0].lower() + sentence[1:]


def main():
    programs, folder, version, date = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3], sys.argv[4]

    def write(name, section, summary, text):
        path = folder / ("man%d" % section) / ("%s.%d.gz" % (name, section))
        path.parent.mkdir(parents=True, exist_ok=True)
        # Without a time in it, so that two builds give the same bytes.
        path.write_bytes(gzip.compress(page(name, section, summary, text, version, date).encode(), mtime=0))

    overview = said(programs / "sluice", "--help")
    write("sluice", 1, overview.split("\n")[0].partition(": ")[2], overview)
    for command in re.findall(r"(?m)^  ([a-z]+)  ", overview.partition("Commands")[2].partition("\n\n")[0]):
        text = said(programs / "sluice", command, "--help")
        summary = text.partition("\n")[2].partition("\n\n")[0]
        write("sluice-" + command, 1, first_sentence(summary), text)
    for daemon in DAEMONS:
        text = said(programs / daemon, "--help")
        write(daemon, 8, text.split("\n")[0].partition(": ")[2], text)


if __name__ == "__main__":
    main()
