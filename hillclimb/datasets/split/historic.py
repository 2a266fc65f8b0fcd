"""Tasks that the historic script left out of every split since v0.4.0, by name.

Source: `prepare_dataset.py` of fleet-ai/SkyRL at 1d3b19e (v1) and of fleet-ai/SkyRL-Fleet at
90062747 (v2).
"""

from __future__ import annotations

from collections.abc import Iterable

from hillclimb.datasets.format.rows import FileRow

EXCLUDED_ENVS = frozenset({"dropbox"})
"""Environments whose instances were not created in time."""
EXCLUDED_TASKS = frozenset(
    {
        "task_a44hx6crecg4_1769052238469_i7dxxtjvq",
        "task_a7rlslof7gdy_1768337837679_8be6pguu3",
        "task_axtmgwocana_1768544478249_k2ozcylyf",
        "task_b1fxgn0k3yms_1768542773490_ddbhj5bai",
        "task_b4v77hb3owof_1768546181946_efsedxv9g",
        "task_b5zt6ipf0nbl_1768346335430_i23gknp4t",
        "task_bafrpi5qgyzh_1768546181946_2cebmq91r",
        "task_bdmnfipwxlqv_1769052238469_4nglwjqfm",
        "task_bxqzfjc2dbte_1768337837679_2qvnm9rq7",
        "task_c3jwlxmfvbop_1768544478249_efo6hxylr",
        "task_c7o0c7ehhv9t_1768542773490_2t9w2l1z5",
        "task_ceqj4h9t0ygi_1768346335430_8j1w8w5xp",
        "task_cgpxfxp78bvp_1768346335430_6v4n8wlt8",
        "task_cgsz56tqjlv6_1768346335430_hqgsjy4wt",
        "task_dpv4bpdpz6db_1768542773490_f3g6w8e8g",
        "task_f7lgb6fxfwln_1768337837679_d1dxk6ahv",
        "task_fl1rq3d2wbj9_1768337837679_d2x4k8p93",
        "task_fn1k5mvjx6r1_1768544478249_1nfmnp6r2",
        "task_fnh5f0x7hv6w_1768544478249_8wptm6zqp",
        "task_g2dwb1rfx69c_1769052238469_bc1y9h9d7",
        "task_g3wpj1mcl0lf_1768546181946_59vtqn9fw",
    }
)
"""Tasks of zillow whose prompt has a date without a year, and which have no CURRENT_DATE."""
ENV_EXCLUDED = "split: the historic script left this environment out, its instances timed out"
TASK_EXCLUDED = "split: the historic script left this task out, it lacks CURRENT_DATE"


def historic_exclusions(rows: Iterable[FileRow]) -> dict[str, str]:
    """Return the reasons of the tasks that the historic script left out, by key."""
    reasons = {}
    for row in rows:
        if row.env_key in EXCLUDED_ENVS:
            reasons[row.key] = ENV_EXCLUDED
        elif row.key in EXCLUDED_TASKS:
            reasons[row.key] = TASK_EXCLUDED
    return reasons
