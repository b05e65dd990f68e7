sluice_test(member_session_test
  SOURCES member_session_test.cc place_claim_test.cc process_info_test.cc
  DEPS sluice::member_session TSAN)
