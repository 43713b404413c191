#!/usr/bin/env python3
"""The page that `sinter explain --html` writes: page_test.py SINTER [TEST...]. InBrowser opens it in a
headless Chromium; page_test.py --has-browser says whether there is one. With SINTER_FAILURE_DIR the
screenshots stay in that folder."""
import html, json, os, re, shutil, subprocess, sys, tempfile, unittest

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SAMPLES = os.path.join(ROOT, "samples", "graphs")
MARKUP = "</script><img src=x onerror=problems.push(1)>\"'&<!--"


def pointwise(name, mode, out, *inputs):
    return {"op": "pointwise", "mode": mode, "name": name, "outputs": {"OUT_0": out},
            "inputs": {f"IN_{i}": t for i, t in enumerate(inputs)}}


def graph(tensors, nodes, name="g"):
    return {"format": "sinter.graph", "version": 1, "name": name, "io_data_type": "bf16",
            "tensors": tensors, "nodes": nodes}


def two_kernels(up="up", hidden="hidden", name="two"):
    return graph({"x": {"dim": [512, 512]}, "w": {"dim": [512, 512]}, "v": {"dim": [512, 512]}, "y": {"output": True}},
                 [{"op": "matmul", "name": up, "inputs": {"A": "x", "B": "w"}, "outputs": {"C": hidden}},
                  pointwise("act", "relu_fwd", "a", hidden),
                  {"op": "matmul", "name": "down", "inputs": {"A": "a", "B": "v"}, "outputs": {"C": "y"}}], name)


class Files(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name, content=None):
        path = os.path.join(self.folder, name)
        if content is not None:
            with open(path, "w", encoding="utf-8") as f:
                f.write(content if isinstance(content, str) else json.dumps(content))
        return path

    def sinter(self, *arguments):
        return subprocess.run([SINTER, "explain", *arguments], capture_output=True, text=True, check=True, timeout=300).stdout

    def page(self, document, *arguments):
        if isinstance(document, dict):
            document = self.path("graph.json", document)
        return self.sinter(document, "--html", "-", *arguments)


class Page(Files):
    def test_the_page_is_all_that_goes_to_stdout_and_the_same_each_time(self):
        g, saved = self.path("g.json", two_kernels()), self.path("page.html")
        self.assertIn("kernel 0", self.sinter(g, "--html", saved))
        with open(saved, encoding="utf-8") as f:
            first = f.read()
        self.assertEqual(first, self.page(g))
        self.assertTrue(first.startswith("<!DOCTYPE html>"))
        self.assertTrue(first.endswith("</html>\n"))

    def test_its_data_is_what_json_says_whatever_the_names_are(self):
        g = self.path("g.json", two_kernels(up=MARKUP, hidden=MARKUP + " h", name=MARKUP))
        page = self.page(g)
        (data,) = re.findall(r'<script id="data" type="application/json">(.*?)</script>', page, re.S)
        self.assertEqual(json.loads(data), json.loads(self.sinter(g, "--json")))
        self.assertNotIn("<", data)
        self.assertEqual(page.count("</script>"), page.count("<script"))

    def test_it_refers_to_nothing_outside(self):
        page = self.page(two_kernels())
        self.assertIn("default-src 'none'", page)
        for outside in (r"https?:", r"\bsrc=", r"\bhref=", r"\burl\(", r"@import", r"\bimport\b *[({'\"]", r"\bfetch\(args?\.",
                        r"XMLHttpRequest", r"innerHTML", r"\beval\("):
            self.assertIsNone(re.search(outside, re.sub(r'<script id="data".*?</script>', "", page, flags=re.S)), outside)

    def test_json_holds_the_graph_by_kernel(self):
        said = json.loads(self.sinter(self.path("g.json", two_kernels()), "--json"))
        self.assertEqual([(n["name"], n["op"], n["mode"], n["kernels"]) for n in said["nodes"]],
                         [("up", "matmul", "", [0]), ("act", "pointwise", "relu_fwd", [0]), ("down", "matmul", "", [1])])
        self.assertEqual((said["nodes"][0]["inputs"], said["nodes"][0]["outputs"]), ({"A": "x", "B": "w"}, {"C": "hidden"}))
        roles = {t["name"]: (t["role"], t["data_type"], t["dim"]) for t in said["tensors"]}
        self.assertEqual(roles["hidden"], ("virtual", "f32", [512, 512]))
        self.assertEqual((roles["w"][0], roles["y"][0]), ("input", "output"))
        for kernel in said["kernels"]:
            self.assertIn(f"void {kernel['entry']}(", kernel["source"])
        ceilings = said["ceilings"]
        self.assertGreater(ceilings["tensor_operations_per_us"], ceilings["ordinary_operations_per_us"])


# Runs before and behind the page's own scripts. What a step returns goes into the result.
BEFORE = """<script>
const problems = [];
addEventListener("error", e => problems.push(e.message));
addEventListener("securitypolicyviolation", e => problems.push("loads " + e.blockedURI));
</script>"""
BEHIND = """<script>
const all = (selector, root = document) => [...root.querySelectorAll(selector)];
const middle = e => {
  const box = e.getBoundingClientRect();
  return [box.left + box.width / 2, box.top + box.height / 2];
};
// As a mouse does it: on whatever lies on top there.
function click(e) {
  e.scrollIntoView({block: "center"});
  const [x, y] = middle(e), at = document.elementFromPoint(x, y);
  for (const type of ["pointerdown", "pointerup", "click"])
    at.dispatchEvent(new PointerEvent(type, {bubbles: true, cancelable: true, clientX: x, clientY: y, pointerId: 1}));
}
const box = (view, kind, key) => all(`#${view} [data-kind="${kind}"]`).find(e => e.dataset.key === String(key));
const exact = () => all(".exact").map(e => `${e.closest(".pane").id} ${e.dataset.kind} ${e.dataset.key}`);
const count = selector => all(selector).length;
function overlaps() {
  const found = [];
  for (const svg of all(".graph svg")) {
    const rects = all(".box > rect:first-child, .tensor > rect", svg).map(r => r.getBBox());
    for (let i = 0; i < rects.length; ++i)
      for (let j = 0; j < i; ++j) {
        const a = rects[i], b = rects[j];
        if (a.x < b.x + b.width && b.x < a.x + a.width && a.y < b.y + b.height && b.y < a.y + a.height) found.push([i, j]);
      }
  }
  return found;
}
const tooWide = () => all(".box, .tensor").filter(g => all("text", g).some(t =>
    t.getComputedTextLength() > g.querySelector("rect").getBBox().width)).map(g => g.textContent);
const result = {};
try {
  %s
} catch (e) {
  problems.push(String(e));
}
const report = document.createElement("pre");
report.id = "result";
report.textContent = JSON.stringify({...result, problems});
document.body.append(report);
</script></body>"""


@unittest.skipUnless(BROWSER, "no chromium")
class InBrowser(Files):
    def browse(self, url, *arguments):
        return subprocess.run([BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
                               "--user-data-dir=" + self.path("profile"), "--window-size=1600,1200",
                               "--virtual-time-budget=5000", *arguments, "file://" + url],
                              capture_output=True, text=True, timeout=240)

    def look(self, page, steps, fragment=""):
        page = page.replace("<title>", BEFORE + "<title>", 1).replace("</body>", BEHIND.replace("%s", steps), 1)
        done = self.browse(self.path("page.html", page) + fragment, "--dump-dom")
        found = re.search(r'<pre id="result">(.*?)</pre>', done.stdout, re.S)
        self.assertTrue(found, done.stderr[-2000:])
        result = json.loads(html.unescape(found.group(1)))
        self.assertEqual(result.pop("problems"), [])
        return result

    def test_the_samples_are_drawn_without_overlaps(self):
        for name in sorted(os.listdir(SAMPLES)):
            with self.subTest(name):
                path = os.path.join(SAMPLES, name)
                said = json.loads(self.sinter(path, "--json", "--arch", "sm_90a"))
                seen = self.look(self.page(path, "--arch", "sm_90a"), """
                  Object.assign(result, {overlaps: overlaps(), wide: tooWide(), nodes: count("#nodes .box"),
                    kernels: count("#kernels .box"), rows: count("#list tbody tr"), points: count("#roofline .point"),
                    intervals: count("#memory .interval"), cuts: count("#cuts li")});""")
                kernels = len(said["kernels"])
                self.assertEqual(seen, {"overlaps": [], "wide": [], "nodes": len(said["nodes"]), "kernels": kernels,
                                        "rows": kernels, "points": kernels, "intervals": len(said["buffers"]),
                                        "cuts": len(said["costs"])})

    def test_a_click_selects_in_every_view(self):
        seen = self.look(self.page(two_kernels(), "--arch", "sm_90a"), """
          result.before = [count(".exact"), document.querySelector("#selected h2").textContent];
          click(box("kernels", "kernel", 1));
          result.kernel = {exact: exact(), title: document.querySelector("#selected h2").textContent, hash: location.hash,
            source: document.querySelector("#source").textContent === data.kernels[1].source};
          click(box("nodes", "node", "act"));
          result.node = {exact: exact(), related: all(".related").map(e => e.dataset.kind + " " + e.dataset.key)};
          result.names = [...new Set(all("#source .name").map(e => e.dataset.key))].sort();
          click(all("#source .name").find(e => e.dataset.key === "a"));
          result.tensor = exact();
          click(all("#list tbody tr")[1]);
          result.row = location.hash;
          dispatchEvent(new KeyboardEvent("keydown", {key: "Escape"}));
          result.none = [count(".exact"), location.hash, document.body.classList.contains("selecting")];""")
        self.assertEqual(seen["before"][0], 0)
        self.assertEqual(sorted(seen["kernel"]["exact"]), sorted(["kernels kernel 1", "list kernel 1", "roofline kernel 1"] +
                         [f"cuts kernel {k}" for k in (1,)]))
        self.assertEqual((seen["kernel"]["title"], seen["kernel"]["hash"], seen["kernel"]["source"]), ("Kernel 1", "#kernel=1", True))
        self.assertEqual(sorted(seen["node"]["exact"]), ["nodes node act", "selected node act"])
        self.assertTrue({"kernel 0", "tensor a", "tensor hidden"} <= set(seen["node"]["related"]))
        self.assertFalse({"kernel 1", "tensor y"} & set(seen["node"]["related"]))
        self.assertEqual(seen["names"], ["a", "hidden", "w", "x"])
        self.assertTrue({"nodes tensor a", "kernels tensor a", "memory tensor a", "cuts tensor a"} <= set(seen["tensor"]))
        self.assertEqual((seen["row"], seen["none"]), ("#kernel=1", [0, "", False]))

    def test_drag_pans_and_the_wheel_zooms_around_the_pointer(self):
        seen = self.look(self.page(two_kernels()), """
          const svg = document.querySelector("#nodes svg"), target = box("nodes", "node", "act");
          const act = (type, x, y) => svg.dispatchEvent(new PointerEvent(type, {bubbles: true, clientX: x, clientY: y,
              buttons: 1, pointerId: 1}));
          svg.setPointerCapture = () => {};  // there is no pointer
          const start = middle(target);
          act("pointerdown", 100, 100), act("pointermove", 130, 140), act("click", 130, 140);
          const moved = middle(target);
          result.moved = [moved[0] - start[0], moved[1] - start[1]].map(Math.round);
          result.selected = location.hash;
          const size = target.getBoundingClientRect().width;
          svg.dispatchEvent(new WheelEvent("wheel", {deltaY: -200, clientX: moved[0], clientY: moved[1], cancelable: true}));
          result.grown = target.getBoundingClientRect().width / size;
          result.stays = Math.hypot(middle(target)[0] - moved[0], middle(target)[1] - moved[1]) < 2;
          document.querySelector("#nodes .fit").click();
          const pane = svg.getBoundingClientRect();
          result.inside = all("#nodes .box, #nodes .tensor").every(e => {
            const b = e.getBoundingClientRect();
            return b.left >= pane.left && b.right <= pane.right && b.top >= pane.top && b.bottom <= pane.bottom;
          });""")
        self.assertEqual((seen["moved"], seen["selected"], seen["stays"], seen["inside"]), ([30, 40], "", True, True))
        self.assertGreater(seen["grown"], 1.3)

    def test_points_lie_under_the_roof_in_the_order_of_their_figures(self):
        g = graph({"x": {"dim": [4096, 4096]}, "w": {"dim": [4096, 4096]}, "y": {"output": True}},
                  [{"op": "matmul", "inputs": {"A": "x", "B": "w"}, "outputs": {"C": "h"}},
                   {"op": "softmax", "inputs": {"X": "h"}, "outputs": {"Y": "y"}}])
        seen = self.look(self.page(g, "--arch", "sm_90a"), """
          const at = k => all("#roofline .point").find(e => e.dataset.key === String(k)).querySelector("circle");
          result.at = [0, 1].map(k => [+at(k).getAttribute("cx"), +at(k).getAttribute("cy"), at(k).parentNode.classList.contains("hollow")]);
          result.roof = Math.min(...all("#roofline .ceiling").map(e => e.getBBox().y));""")
        (product_x, product_y, product), (softmax_x, softmax_y, softmax) = seen["at"]
        self.assertEqual((product, softmax), (False, True))
        self.assertLess(softmax_x, product_x)
        self.assertLess(seen["roof"], product_y)
        self.assertLess(product_y, softmax_y)

    def test_names_are_text_and_links_select(self):
        page = self.page(two_kernels(up=MARKUP, hidden=MARKUP + " h", name=MARKUP))
        seen = self.look(page, """Object.assign(result, {images: count("img"), title: document.title, exact: exact(),
                                    heading: document.querySelector("h1").textContent});""", "#node=down")
        self.assertEqual((seen["images"], seen["title"], seen["heading"]), (0, MARKUP + ": sinter explain", MARKUP))
        self.assertIn("nodes node down", seen["exact"])
        for broken in ("#kernel=99", "#kernel=%", "#node=none", "#x"):
            self.assertEqual(self.look(page, "result.exact = exact();", broken)["exact"], [])

    def test_of_10000_nodes_a_part_is_drawn_and_the_page_says_so(self):
        nodes = [pointwise(f"n{i}", ("neg", "relu_fwd")[i % 2], f"t{i + 1}", f"t{i}") for i in range(10000)]
        page = self.page(graph({"t0": {"dim": [64, 64]}, "t10000": {"output": True}}, nodes))
        seen = self.look(page, """result.first = [count("#nodes .box"), document.querySelector("#nodes .note").textContent];
                                  all("#nodes .note button")[1].click();
                                  result.second = document.querySelector("#nodes .note").textContent;
                                  select("node", "n9000");
                                  result.selected = box("nodes", "node", "n9000").classList.contains("exact");""")
        self.assertEqual(seen["first"][0], 400)
        self.assertIn("0\u2013399 of 10000 drawn", seen["first"][1])
        self.assertIn("400\u2013799 of 10000 drawn", seen["second"])
        self.assertTrue(seen["selected"])

    def test_a_screenshot_shows_it_in_both_themes(self):
        path = self.path("page.html", self.page(os.path.join(SAMPLES, "transformer_layer.json"), "--arch", "sm_90a"))
        folder = os.environ.get("SINTER_FAILURE_DIR") or self.folder
        sizes = {}
        for name, url, *arguments in (("light", path), ("dark", path, "--force-dark-mode"), ("blank", self.path("b.html", "<p>"))):
            image = os.path.join(folder, f"explain_page_{name}.png")
            done = self.browse(url, "--screenshot=" + image, *arguments)
            self.assertTrue(os.path.exists(image), done.stderr[-2000:])
            sizes[name] = os.path.getsize(image)
        self.assertGreater(min(sizes["light"], sizes["dark"]), 10 * sizes["blank"])
        self.assertNotEqual(sizes["light"], sizes["dark"])


if __name__ == "__main__":
    if sys.argv[1:] == ["--has-browser"]:
        sys.exit(0 if BROWSER else 1)
    SINTER = os.path.abspath(sys.argv.pop(1))
    unittest.main()
