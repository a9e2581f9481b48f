"""What the server has done so far, in the form that Prometheus reads."""

import time
from collections import Counter

from seqlab.serve.lane import Lane

BUCKETS = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0)  # seconds


class Counters:
    """Requests by route and status, how long they took, and what stands in the line."""

    def __init__(self, lane: Lane) -> None:
        self.lane = lane
        self.requests: Counter[tuple[str, int]] = Counter()
        self.within: Counter[tuple[str, float]] = Counter()
        self.seconds: Counter[str] = Counter()
        self.begun = time.time()

    def answered(self, route: str, status: int, seconds: float) -> None:
        self.requests[route, status] += 1
        self.seconds[route] += seconds  # type: ignore[assignment]
        for bucket in BUCKETS:
            self.within[route, bucket] += seconds <= bucket

    def to_text(self) -> str:
        counts: Counter[str] = Counter()
        lines = ["# TYPE seqlab_requests_total counter"]
        for (route, status), count in sorted(self.requests.items()):
            counts[route] += count
            lines.append(f'seqlab_requests_total{{route="{route}",status="{status}"}} {count}')
        lines.append("# TYPE seqlab_request_seconds histogram")
        for route, count in sorted(counts.items()):
            for bucket in BUCKETS:
                lines.append(
                    f'seqlab_request_seconds_bucket{{route="{route}",le="{bucket}"}} {self.within[route, bucket]}'
                )
            lines.append(f'seqlab_request_seconds_bucket{{route="{route}",le="+Inf"}} {count}')
            lines.append(f'seqlab_request_seconds_sum{{route="{route}"}} {self.seconds[route]:.6f}')
            lines.append(f'seqlab_request_seconds_count{{route="{route}"}} {count}')
        single = {
            "seqlab_batches_total counter": self.lane.batches,
            "seqlab_batched_rows_total counter": self.lane.rows,
            "seqlab_places_taken gauge": self.lane.taken,
            "seqlab_started_seconds gauge": int(self.begun),
        }
        for name, value in single.items():
            lines += [f"# TYPE {name}", f"{name.split()[0]} {value}"]
        return "\n".join(lines) + "\n"
