"""deploy/prometheus/alerts.yml is valid, uses metrics that exist, and its alert of a lost member fires in a real Prometheus.
Every query of deploy/grafana/sluice.json returns data there."""
import json
import re
import shutil
import subprocess
import sys
import unittest
import urllib.parse
import urllib.request

from sluice_testing import ADULT, PATIENCE, ROOT, SluiceTest, free_port, wait_until

RULES = ROOT / "deploy" / "prometheus" / "alerts.yml"
GRAFANA = ROOT / "deploy" / "grafana" / "sluice.json"
PROMETHEUS, PROMTOOL = shutil.which("prometheus"), shutil.which("promtool")
WHY_NOT = None if PROMETHEUS and PROMTOOL else "SKIPPED, NOT PASSED: there is no prometheus here"


@unittest.skipIf(WHY_NOT, WHY_NOT)
class AlertsTest(SluiceTest):
    def test_the_rules_are_valid_and_use_metrics_that_are_documented(self):
        checked = subprocess.run([PROMTOOL, "check", "rules", RULES], capture_output=True, text=True)
        self.assertEqual(checked.returncode, 0, checked.stdout + checked.stderr)
        listed = re.findall(r"(?m)^\| `(sluice_\w+)` \|", (ROOT / "docs" / "metrics.md").read_text())
        used = re.findall(r"\b(sluice_\w+)", RULES.read_text())
        self.assertGreater(len(used), 4)
        self.assertEqual(set(used) - set(listed), set())

    def prometheus(self, targets):
        """Starts one that scrapes and judges each second, with the rules as they are but for their patience. Returns its address."""
        rules = self.tmp / "alerts.yml"
        rules.write_text(re.sub(r"(?m)^    for: .*$", "    for: 1s", RULES.read_text()))
        config = self.tmp / "prometheus.json"  # JSON is YAML, too
        config.write_text(json.dumps({
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(rules)],
            "scrape_configs": [{"job_name": "sluice", "honor_labels": True, "static_configs": [{"targets": targets}]}]}))
        address = "127.0.0.1:%d" % free_port()
        self.start(PROMETHEUS, "--config.file=%s" % config, "--storage.tsdb.path=%s" % (self.tmp / "tsdb"),
                   "--web.listen-address=%s" % address, log="prometheus.out")
        return address

    def ask(self, address, path):
        try:
            with urllib.request.urlopen("http://%s/api/v1/%s" % (address, path), timeout=PATIENCE) as reply:
                return json.load(reply)["data"]
        except OSError:  # not up yet
            return None

    def firing(self, address):
        data = self.ask(address, "alerts")
        return {(alert["labels"]["alertname"], alert["labels"].get("role", alert["labels"].get("instance")))
                for alert in (data or {"alerts": []})["alerts"] if alert["state"] == "firing"}

    def test_each_query_of_the_grafana_dashboard_returns_data(self):
        log_dir = self.up("--server_num=1", "--worker_num=1")
        job = self.sluice("submit", log_dir, "--job=%s" % ADULT, "--worker_num=1", "--epochs=100000", "--set=checkpoint.every_steps=200",
                          "--output_dir=%s" % (self.tmp / "out"), "--detach").split()[-1]
        address = self.prometheus(sorted(self.admin_addresses(log_dir).values()))
        dashboard = json.loads(GRAFANA.read_text())
        queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
        self.assertGreater(len(queries), 15)
        # The labels `job` are of Sluice: honor_labels.
        filled = {query: query.replace("$job", job).replace("$__rate_interval", "30s") for query in queries}
        empty = set(queries)  # those that have not returned data yet: a scrape may fail on a busy machine

        def all_return():
            for query in sorted(empty):
                data = self.ask(address, "query?" + urllib.parse.urlencode({"query": filled[query]}))
                if any(one["value"][1] != "NaN" for one in (data or {"result": []})["result"]):
                    empty.remove(query)
            return not empty
        wait_until(all_return, lambda: "without data: %s" % sorted(empty))
        wait_until(lambda: job in (self.ask(address, "label/job/values") or []), "the label of the job")

    def test_a_killed_worker_fires_the_alert_of_a_lost_member(self):
        scheduler = "127.0.0.1:%d" % free_port()
        admin = {who: "127.0.0.1:%d" % free_port() for who in ("scheduler", "pserver", "worker 0", "worker 1")}

        def daemon(who, *flags):
            name = who.split()[0]
            return self.start("sluice-" + name, "--log_dir=%s" % (self.tmp / "log"), "--admin_bind=%s" % admin[who], *flags)
        daemon("scheduler", "--bind=%s" % scheduler, "--server_num=1", "--worker_num=2", "--heartbeat_ms=200", "--lease_ms=6000")
        daemon("pserver", "--scheduler=%s" % scheduler, "--rank=0", "--bind=127.0.0.1:0")
        worker = [daemon("worker %d" % rank, "--scheduler=%s" % scheduler, "--rank=%d" % rank) for rank in range(2)][1]
        address = self.prometheus(sorted(admin.values()))

        def members():
            data = self.ask(address, "query?query=sluice_scheduler_members")
            return {one["metric"]["role"]: one["value"][1] for one in (data or {"result": []})["result"]}
        wait_until(lambda: members() == {"pserver": "1", "worker": "2"}, "Prometheus has the members")

        def judged():
            rules = self.ask(address, "rules")
            return rules and rules["groups"][0].get("lastEvaluation", "0") > "1"
        wait_until(judged, "the rules are judged")
        # A scrape that a busy machine delays for more than a second fires an alert for a moment.
        wait_until(lambda: self.firing(address) == set(), lambda: "no alert fires: %s" % self.firing(address))

        worker.kill()
        worker.wait()
        wanted = {("SluiceMemberLost", "worker"), ("SluiceDaemonUnreachable", admin["worker 1"])}
        wait_until(lambda: self.firing(address) == wanted, lambda: "both alerts fire: %s" % self.firing(address))


if __name__ == "__main__":
    if WHY_NOT:
        print(WHY_NOT, file=sys.stderr)
    unittest.main()
