# Forked workers of R, a cluster of R processes, and programs that each of them runs.
library(parallel)
work <- function(n) {
  end <- proc.time()[["user.self"]] + 0.1
  while (proc.time()[["user.self"]] < end) sum(sqrt(seq_len(10000)))
  length(system2("seq", n, stdout = TRUE))
}
stopifnot(identical(unlist(mclapply(1:8, work, mc.cores = 3)), 1:8))
cluster <- makeCluster(2)
stopifnot(identical(unlist(parLapply(cluster, 1:8, work)), 1:8))
stopCluster(cluster)
