# %% [markdown]
# # 5 · Time travel
#
# A service is a function of its log: the same entries give the same state. So the state at any moment can be had
# again, long after, without a cluster; and other code can be asked what it would have done.

# %%
from demo import recorded_morning
from examples.quota_watch import QuotaWatch
from trimaran.archive.spark import create_session
from trimaran.cluster.time_travel import replay_service

morning = recorded_morning()
member = morning.member(morning.survivor_member_id)
snapshots = [event for event in morning.events if event.what == "snapshot"]
print(f"snapshots were taken at {[event.log_position for event in snapshots]}")

# %% [markdown]
# The state at a position: the newest snapshot at or below it is loaded, and the log from there on is delivered to the
# real service.


# %%
def tell(replayed):
    service = replayed.service
    print(f"{replayed.log_position:,}: {len(service.allowed_times):,} hosts, {service.refused_count} requests refused")


then = replay_service(member, QuotaWatch, position=2_000_000)
tell(then)

# %% [markdown]
# It can go on from there.

# %%
then.advance(2_500_000)
tell(then)

# %% [markdown]
# The state at many positions is a job for Spark: one task for each snapshot. **What to see:** both numbers grow all
# morning. There are always new hosts: the upper line hardly bends.

# %%
from demo import figures as web_figures
from examples.replays_on_spark import states_at

spark = create_session("time travel")
end_position = replay_service(member, QuotaWatch, bound="recorded").log_position
states = states_at(
    spark,
    member,
    QuotaWatch,
    range(0, end_position + 1, 200_000),
    extract=lambda service: (len(service.allowed_times), service.refused_count),
    schema="hosts long, refused long",
    bound="recorded",
)
along = states.orderBy("position").toPandas()
web_figures.state_over_log(along)

# %% [markdown]
# Is the service deterministic? From each snapshot the log is replayed to the next one, and what the service would
# write there is held against what a member did write, byte for byte.

# %%
from examples.replays_on_spark import snapshot_verdicts

snapshot_verdicts(spark, member, QuotaWatch).toPandas()

# %% [markdown]
# ## What if?
#
# What if the government's own machines had no quota? The new code is given the same log, and what it does is compared
# with what the old code does.

# %%
from trimaran.cluster.time_travel import what_if


class FreeForGovernment(QuotaWatch):
    def decide(self, host, time_s):
        decision = super().decide(host, time_s)
        return "allowed\t0" if decision == "denied\t0" and host.endswith(".gov") else decision


comparison = what_if(member, old=QuotaWatch, new=FreeForGovernment, bound="recorded")
print({f"{kind} {change}": count for (kind, change), count in comparison.changes.items()})

# %% [markdown]
# The first reply that is another one, and the position of the request that it is the answer to. The timer that watches
# the host is missing there, too.

# %%
for found in comparison.sample[:2]:
    print(f"{found.position:,} {found.output.kind} {found.change}: {found.old}")

# %% [markdown]
# **What to see:** under the new rule fewer requests are refused in the busy hours; where nobody of the government was
# refused, nothing changes.

# %%
from demo.web import REQUEST_KEY, decisions, web_requests

requests = web_requests(spark.read.format("aeron_archive").load(str(member))).persist()
rules = {"ten a minute for all": QuotaWatch, "no quota for .gov": FreeForGovernment}
refused = {name: decisions(spark, member, service).where("decision = 'denied'") for name, service in rules.items()}
by_hour = {
    name: requests.join(found, REQUEST_KEY).groupBy("hour").count().toPandas() for name, found in refused.items()
}
web_figures.refusals_by_hour(by_hour)
