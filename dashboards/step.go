package dashboards

// step is about one step: what its attempts yield, where its limit should be.
var step = page{
	uid: uidStep, title: "Step",
	says: "One step: what its attempts yield, why it fails, how long it waits and takes, and what a new version changed.",
	from: "now-24h", variables: ofCalls,
	fill: fillStep,
}

func fillStep(s *sheet) {
	s.line(retriesOverTime())
}
