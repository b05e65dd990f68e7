sluice_test(member_session_test
  SOURCES
    member_session_test.cc
    place_claim_test.cc
    process_info_test.cc
    trace_recorder_test.cc
  DEPS sluice::member_session sluice::trace_recorder ALONE ProcessInfoTest TSAN)
sluice_test(scheduler_wait_test
  SOURCES
    hot_row_use_test.cc
    scheduler_choice_test.cc
    scheduler_wait_test.cc
  DEPS sluice::hot_row_use sluice::scheduler_client sluice::scheduler_wait)
