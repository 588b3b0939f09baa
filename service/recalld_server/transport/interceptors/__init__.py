"""The layers around every call."""

from __future__ import annotations

from collections.abc import Sequence

from recalld_server.transport.interceptors.access_log import AccessLog
from recalld_server.transport.interceptors.admission import Admission
from recalld_server.transport.interceptors.deadline import Deadline
from recalld_server.transport.interceptors.draining import Draining
from recalld_server.transport.interceptors.error_mapping import ErrorMapping
from recalld_server.transport.interceptors.hops import Hops
from recalld_server.transport.interceptors.request_id import RequestId
from recalld_server.transport.pipeline import Interceptor


def in_order(hops: Hops, draining: Draining, admission: Admission) -> Sequence[Interceptor]:
    """The interceptors, outermost first."""
    return [
        RequestId(),  # everything further in logs under it and returns it
        AccessLog(),  # sees every end that a call can have
        ErrorMapping(),  # what is raised further in becomes a status
        hops,  # a call that goes in circles is cut before it costs anything
        draining,  # a stopping server refuses before it spends anything
        Deadline(),  # waiting for admission counts as well
        admission,
    ]
