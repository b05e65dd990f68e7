sluice_test(member_session_test
  SOURCES member_session_test.cc place_claim_test.cc process_info_test.cc
  DEPS sluice::member_session TSAN)
sluice_test(scheduler_wait_test
  SOURCES scheduler_wait_test.cc tls_advice_test.cc
  DEPS sluice::scheduler_wait)
