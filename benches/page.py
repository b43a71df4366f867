"""Pages into which benchmarks write their tables, and builds by name."""
import re
import subprocess


def version(binary):
    """The commit of a build, and the date of that."""
    text = subprocess.run([binary, "--version"], check=True, capture_output=True, text=True).stdout
    return re.search(r"commit \w+ [\d-]+", text).group(0)


class Place:
    """Where a page has what this command line has written before. Looked for before anything is measured. Another build is named by its commit, and not by its path."""

    def __init__(self, page, program, arguments):
        arguments = list(arguments)
        for option in {"--into", "--binary"} & set(arguments):
            place = arguments.index(option)
            del arguments[place:place + 2]
        if "--before" in arguments:
            place = arguments.index("--before") + 1
            arguments[place] = version(arguments[place]).split()[1]
        self.page, self.mark, self.end = page, f"<!-- written by: {' '.join([program, *arguments])} -->\n", "<!-- until here -->\n"
        self.around()

    def around(self):
        before, mark, after = self.page.read_text().partition(self.mark)
        _, end, after = after.partition(self.end)
        if not (mark and end):
            raise SystemExit(f"{self.page} has no line '{self.mark.strip()}' with a line '{self.end.strip()}' behind it")
        return before, after

    def put(self, text):
        before, after = self.around()
        self.page.write_text(before + self.mark + text + self.end + after)
