# %% [markdown]
# # 8 · A recovered morning
#
# A shop has its stock in a cluster of three members. A backup follows it. In the middle of the morning a wrong import
# overwrites the stock, and the tills sell on. Nothing is broken, so no member notices: what is wrong was said by a
# client, and is committed. The log has all of it, so the shop goes back to the moment before.

# %%
from demo import BackedUpShop
from demo.shop import PRICES, left_of

shop = BackedUpShop()
shop

# %% [markdown]
# The morning: the tills sell. Then the import of the stock runs, in a version of today: it reads the column of the
# prices instead of the counts. Until somebody notices, three hundred more pieces are sold.

# %%
sold = shop.sell(700)
shop.import_stock(PRICES)
sold_after = shop.sell(300)
position = shop.wait_for_backup()
print(f"{len(sold) + len(sold_after):,} pieces sold, the backup is at {position:,}")

# %% [markdown]
# What the cluster says now is not what the tills have noted.

# %%
import pandas as pd

right, wrong = left_of(sold + sold_after), shop.stock()
pd.DataFrame({"by the tills": right, "by the cluster": wrong})

# %% [markdown]
# When did it happen? The backup is a member's directory. The service is replayed from it, entry by entry, without a
# cluster, and after each the pieces are counted.

# %%
from trimaran import archive
from trimaran.cluster.time_travel import replay_service
from trimaran.service_api.ready_made.counters.service import CounterService


def pieces_along(directory, first_position=0):
    table = archive.frames(directory / "archive", recording_id=0, columns=["position", "type"], reassemble=True)
    positions = [row["position"] for row in table.read_all().to_pylist() if row["type"] == 1]
    replayed, rows = replay_service(directory, CounterService, position=positions[0], bound="recorded"), []
    for at in positions:
        replayed.advance(at)
        rows.append((at, sum(replayed.service.counters.values())))
    return pd.DataFrame(rows, columns=["position", "pieces"])


along = pieces_along(shop.backup)

# %% [markdown]
# A sale takes one piece. The opening of the shop apart, one stretch of the log takes and adds hundreds at a time: it
# begins at the position to go back to.

# %%
opened = along["pieces"].idxmax()
jumps = along["pieces"].diff().abs().loc[opened + 1 :]
wrong_position = int(along["position"][jumps.index[jumps > 1][0] - 1])
print(f"the import begins at {wrong_position:,}")

# %% [markdown]
# The backup as it was there, as a new cluster. It has an id of its own, so it runs beside the old one, which goes on
# as it is until everybody has looked.

# %%
restored = shop.restore(wrong_position)
print("as the tills had it then:", shop.stock("restored") == left_of(sold))

# %% [markdown]
# What was sold after the import was right, and the tills have noted it: it is sold again, in the new cluster.

# %%
shop.sell_again(sold_after)
recovered = shop.stock("restored")
print("as the tills have it:", recovered == right)

# %% [markdown]
# Both clusters are stopped, and their logs compared. **What to see:** the two lines are one up to the import. Then the
# stock jumps in the old cluster, while the new one goes on as if nothing had happened.

# %%
from demo import figures as shop_figures

shop.stop()
shop_figures.stock_over_log(along, pieces_along(shop.directory / "again" / "node-0"), wrong_position)

# %% [markdown]
# **What to see:** for each article the recovered stock is what the tills have noted. The old cluster counts on from the
# prices: more cheese than there ever was, and less than no eggs.

# %%
shop_figures.stocks(pd.DataFrame({"by the tills": right, "old cluster": wrong, "recovered": recovered}))
